-- ARGV: worker, reason, max_attempts. Fails everything that the worker holds. Returns how many.
local abandoned = 0
for _, episode in ipairs(redis.call('ZRANGE', LEASES, 0, -1)) do
  if holder_of(episode) == ARGV[1] then
    punish(episode, ARGV[2], 'lease', tonumber(ARGV[3]))
    abandoned = abandoned + 1
  end
end
finish()
return abandoned
