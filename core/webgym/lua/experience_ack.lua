-- KEYS: stream, backlog. ARGV: channel, then for each: stream id, transitions. Returns the backlog.
-- Only what this call deleted leaves the count, so acknowledging twice is harmless.
local gone = 0
for i = 2, #ARGV, 2 do
  if redis.call('XDEL', KEYS[1], ARGV[i]) == 1 then gone = gone + tonumber(ARGV[i + 1]) end
end
local backlog = redis.call('DECRBY', KEYS[2], gone)
if gone > 0 then redis.call('PUBLISH', ARGV[1], backlog) end
return backlog
