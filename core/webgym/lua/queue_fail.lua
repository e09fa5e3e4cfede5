-- ARGV: max_attempts, then for each: episode, attempt, reason, fault class.
-- Returns 'queued', 'dead' or 'ignored' for each; ignored where another attempt is current or it is not leased.
local states = {}
for i = 2, #ARGV, 4 do
  local episode = ARGV[i]
  local state = 'ignored'
  if redis.call('HGET', ATTEMPTS, episode) == ARGV[i + 1] and redis.call('ZSCORE', LEASES, episode) then
    state = punish(episode, ARGV[i + 2], ARGV[i + 3], tonumber(ARGV[1]))
  end
  states[#states + 1] = state
end
finish()
return states
