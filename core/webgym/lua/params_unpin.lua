-- ARGV[3]: version. Returns 1 if it was pinned.
local was = redis.call('SREM', PINNED, ARGV[3])
trim()
return was
