-- ARGV: worker, count, lease in ms, max_attempts, most leases to reclaim, share of the longest waiting.
-- Returns episode, attempt, payload for each task, flat.
local worker, limit, deadline = ARGV[1], tonumber(ARGV[2]), NOW + tonumber(ARGV[3])
-- Every lease reclaims first, so no process has to live for expired ones to come back.
local expired = redis.call('ZRANGEBYSCORE', LEASES, '-inf', whole(NOW), 'LIMIT', 0, tonumber(ARGV[5]))
for _, episode in ipairs(expired) do
  local holder = holder_of(episode) or '?'
  punish(episode, 'lease expired: ' .. holder .. ' gave no sign of life', 'lease', tonumber(ARGV[4]))
end

-- By priority; but of every so many leases one goes to the episode that has waited longest, so that none waits for
-- ever behind a stream of more urgent ones.
local share, given = tonumber(ARGV[6]), tonumber(redis.call('HGET', TALLY, 'given') or '0')
local old = math.floor((given + limit) / share) - math.floor(given / share)
local members = {}
local function take(from, other, most)
  local found = redis.call('ZRANGE', from, 0, most - 1)
  if #found == 0 then return end
  redis.call('ZREMRANGEBYRANK', from, 0, #found - 1)
  for first = 1, #found, 1000 do
    redis.call('ZREM', other, unpack(found, first, math.min(first + 999, #found)))
  end
  for _, member in ipairs(found) do members[#members + 1] = member end
end
if limit > old then take(QUEUED, ARRIVED, limit - old) end
if old > 0 then take(ARRIVED, QUEUED, old) end

local leased = {}
local holder = whole(NOW) .. ' ' .. worker
for _, member in ipairs(members) do
  local purpose, episode = string.match(member, '^%x+:(%l+):(.+)$')
  local attempt = redis.call('HINCRBY', ATTEMPTS, episode, 1)
  redis.call('ZADD', LEASES, whole(deadline), episode)
  redis.call('HSET', HOLDERS, episode, holder)
  count(purpose, 'queued', -1)
  count(purpose, 'leased', 1)
  leased[#leased + 1] = episode
  leased[#leased + 1] = attempt
  leased[#leased + 1] = redis.call('HGET', TASKS, episode) or ''
end
if #members > 0 then redis.call('HSET', TALLY, 'given', whole(given + #members)) end
finish()
return leased
