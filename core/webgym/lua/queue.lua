-- Shared head of the queue's scripts. One episode is always in exactly one of queued, leases, done, dead.
--   queued   ZSET  member "<counter>:<purpose>:<episode>", score -priority. Equal scores sort by member, so by the
--                  counter of fixed width: first come, first served, at any counter and any priority.
--   arrived  ZSET  the same members by their counter: the longest waiting first, whatever its priority
--   leases   ZSET  episode by deadline, milliseconds of this server's clock
--   tasks    HASH  episode -> encoded EpisodeTask          } while queued, leased or dead
--   order    HASH  episode -> "<score> <member>"           }
--   attempts HASH  episode -> how often it was leased      }
--   reasons  HASH  episode -> JSON list of failures        }
--   holders  HASH  episode -> "<when it was leased, ms> <worker>", while leased
--   done     ZSET  episode by time of completion; the latest only
--   dead     ZSET  episode by time of death
--   tally    HASH  "<purpose>.<state>" -> how many; "counter" -> the last counter given out; "given" -> leases so far
local QUEUED, LEASES, TASKS, ORDER, ATTEMPTS = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local HOLDERS, REASONS, DONE, DEAD, TALLY = KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10]
local RESULTS, COUNTERS = KEYS[11], KEYS[12]
-- No key but a channel, which tells those who wait for tasks that there are some.
local CHANNEL, ARRIVED = KEYS[13], KEYS[14]

local clock = redis.call('TIME')
local NOW = tonumber(clock[1]) * 1000 + math.floor(tonumber(clock[2]) / 1000)

local function whole(number) return string.format('%.0f', number) end

-- Of a member, or of an entry of ORDER.
local function purpose_of(text) return string.match(text, '%x+:(%l+):') end

-- Changes of the tally are collected and written once per script, by its last statement.
local changes, enqueued = {}, false
local function count(purpose, state, by)
  local name = purpose .. '.' .. state
  changes[name] = (changes[name] or 0) + by
end
local function finish()
  for name, by in pairs(changes) do
    if by ~= 0 then redis.call('HINCRBY', TALLY, name, by) end
  end
  if enqueued then redis.call('PUBLISH', CHANNEL, '') end
end

-- Whoever holds a leased episode, and since when.
local function holder_of(episode)
  local since, worker = string.match(redis.call('HGET', HOLDERS, episode) or '', '^(%d+) (.*)$')
  return worker, since
end

local function enqueue(episode)
  enqueued = true
  local score, member = string.match(redis.call('HGET', ORDER, episode), '^(%S+) (.+)$')
  redis.call('ZADD', QUEUED, score, member)
  redis.call('ZADD', ARRIVED, string.match(member, '^%d+'), member)
  count(purpose_of(member), 'queued', 1)
end

-- Whether it was queued.
local function dequeue(member)
  redis.call('ZREM', ARRIVED, member)
  return redis.call('ZREM', QUEUED, member) == 1
end

local function unlease(episode, purpose)
  redis.call('ZREM', LEASES, episode)
  redis.call('HDEL', HOLDERS, episode)
  count(purpose, 'leased', -1)
end

local function forget(episode)
  redis.call('HDEL', TASKS, episode)
  redis.call('HDEL', ORDER, episode)
  redis.call('HDEL', ATTEMPTS, episode)
  redis.call('HDEL', REASONS, episode)
end

-- A leased episode failed: back to its place in the queue, or dead once it failed often enough.
local function punish(episode, reason, class, max_attempts)
  local purpose = purpose_of(redis.call('HGET', ORDER, episode))
  local worker = holder_of(episode) or ''
  local attempt = tonumber(redis.call('HGET', ATTEMPTS, episode))
  local known = redis.call('HGET', REASONS, episode)
  local reasons = known and cjson.decode(known) or {}
  reasons[#reasons + 1] = {attempt = attempt, worker = worker, reason = reason, fault = class, time = NOW / 1000}
  local text = cjson.encode(reasons)
  redis.call('HSET', REASONS, episode, text)
  unlease(episode, purpose)
  if #reasons >= max_attempts then
    redis.call('ZADD', DEAD, NOW, episode)
    count(purpose, 'dead', 1)
    redis.call('XADD', RESULTS, '*', 'kind', 'dead', 'episode', episode, 'attempt', attempt,
      'task', redis.call('HGET', TASKS, episode), 'reasons', text)
    return 'dead'
  end
  enqueue(episode)
  return 'queued'
end
