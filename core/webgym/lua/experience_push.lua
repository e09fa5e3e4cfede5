-- KEYS: stream, backlog, seen. ARGV: how many ids to remember, then for each: id, transitions, bytes.
-- Returns {backlog, batches added}. A batch whose id (EPISODE/ATTEMPT/FIRST+COUNT) was seen lately is not added again.
-- Its part is a hash of the episode: all that is known of one episode falls to one of the learners, which sorts out what
-- came before.
local clock = redis.call('TIME')
local now = string.format('%.0f', tonumber(clock[1]) * 1000 + math.floor(tonumber(clock[2]) / 1000))
local transitions, added = 0, 0
for i = 2, #ARGV, 3 do
  if redis.call('ZADD', KEYS[3], 'NX', now, ARGV[i]) == 1 then
    local episode = string.match(ARGV[i], '^(.*)/[^/]*/[^/]*$') or ARGV[i]
    local part = tonumber(string.sub(redis.sha1hex(episode), 1, 6), 16)
    redis.call('XADD', KEYS[1], '*', 'n', ARGV[i + 1], 'batch', ARGV[i + 2], 'part', part)
    transitions = transitions + tonumber(ARGV[i + 1])
    added = added + 1
  end
end
redis.call('ZREMRANGEBYRANK', KEYS[3], 0, -(tonumber(ARGV[1]) + 1))
return {redis.call('INCRBY', KEYS[2], transitions), added}
