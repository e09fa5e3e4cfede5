-- ARGV: worker, lease in ms, then episodes. Returns those that the worker still holds.
local deadline = whole(NOW + tonumber(ARGV[2]))
local held = {}
for i = 3, #ARGV do
  if holder_of(ARGV[i]) == ARGV[1] then
    redis.call('ZADD', LEASES, 'XX', deadline, ARGV[i])
    held[#held + 1] = ARGV[i]
  end
end
return held
