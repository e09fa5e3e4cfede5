-- ARGV: for each: episode, attempt. Gives leases back without holding it against the episode. Returns how many.
local released = 0
for i = 1, #ARGV, 2 do
  local episode = ARGV[i]
  if redis.call('HGET', ATTEMPTS, episode) == ARGV[i + 1] and redis.call('ZSCORE', LEASES, episode) then
    unlease(episode, purpose_of(redis.call('HGET', ORDER, episode)))
    enqueue(episode)
    released = released + 1
  end
end
finish()
return released
