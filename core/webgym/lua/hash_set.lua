-- KEYS: hash. ARGV: field, value, and so on. Returns how many fields are new.
local new = 0
for i = 1, #ARGV, 2 do new = new + redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1]) end
return new
