-- KEYS: reports, bell, grants of each process that waits, and what is set to let all pass for good, if anything.
-- ARGV: what they are told, how many processes wait.
redis.call('DEL', KEYS[1], KEYS[2])
local last = 2 + tonumber(ARGV[2])
for i = 3, last do
  redis.call('DEL', KEYS[i])
  redis.call('RPUSH', KEYS[i], ARGV[1])
end
if KEYS[last + 1] then redis.call('SET', KEYS[last + 1], '1') end
return 0
