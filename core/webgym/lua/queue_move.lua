-- ARGV: score, then episodes. Gives them another priority. Returns 'queued', 'leased', 'dead' or 'unknown' for each;
-- those that are not queued take it when they are again.
local states = {}
for i = 2, #ARGV do
  local episode = ARGV[i]
  local order = redis.call('HGET', ORDER, episode)
  local state = 'unknown'
  if order then
    local member = string.match(order, ' (.+)$')
    redis.call('HSET', ORDER, episode, ARGV[1] .. ' ' .. member)
    if redis.call('ZADD', QUEUED, 'XX', 'CH', ARGV[1], member) == 1 or redis.call('ZSCORE', QUEUED, member) then
      state = 'queued'
    else
      state = redis.call('ZSCORE', LEASES, episode) and 'leased' or 'dead'
    end
  end
  states[#states + 1] = state
end
return states
