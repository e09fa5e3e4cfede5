-- KEYS: reports, bell, grants of this process, open. ARGV: process, its report.
-- Returns 1 where nobody takes turns any more; otherwise the report stands until it is answered.
if redis.call('EXISTS', KEYS[4]) == 1 then return 1 end
-- A grant from before this report is spent: it was for the step that is over.
redis.call('DEL', KEYS[3])
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
redis.call('RPUSH', KEYS[2], ARGV[1])
return 0
