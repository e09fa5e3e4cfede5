-- ARGV: worker, count, lease in ms, max_attempts, most leases to reclaim.
-- Returns episode, attempt, payload for each task, flat.
local worker, limit, deadline = ARGV[1], tonumber(ARGV[2]), NOW + tonumber(ARGV[3])
-- Every lease reclaims first, so no process has to live for expired ones to come back.
local expired = redis.call('ZRANGEBYSCORE', LEASES, '-inf', whole(NOW), 'LIMIT', 0, tonumber(ARGV[5]))
for _, episode in ipairs(expired) do
  local holder = redis.call('HGET', HOLDERS, episode) or '?'
  punish(episode, 'lease expired: ' .. holder .. ' gave no sign of life', 'lease', tonumber(ARGV[4]))
end
local leased = {}
if limit > 0 then
  local members = redis.call('ZRANGE', QUEUED, 0, limit - 1)
  if #members > 0 then redis.call('ZREMRANGEBYRANK', QUEUED, 0, #members - 1) end
  for _, member in ipairs(members) do
    local purpose, episode = string.match(member, '^%x+:(%l+):(.+)$')
    local attempt = redis.call('HINCRBY', ATTEMPTS, episode, 1)
    redis.call('ZADD', LEASES, whole(deadline), episode)
    redis.call('HSET', HOLDERS, episode, worker)
    count(purpose, 'queued', -1)
    count(purpose, 'leased', 1)
    leased[#leased + 1] = episode
    leased[#leased + 1] = attempt
    leased[#leased + 1] = redis.call('HGET', TASKS, episode) or ''
  end
end
finish()
return leased
