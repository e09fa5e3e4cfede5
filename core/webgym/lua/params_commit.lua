-- Makes a staged version visible, unless a newer generation of the learner has published.
-- KEYS[3..5]: generation, staging, hash of the version.
-- ARGV[3..8]: version, generation, 1 to pin, channel, score, what a generation is worth in it.
-- Returns {1, generation}, or {0, the newer generation}.
local GENERATION, STAGING, TARGET = KEYS[3], KEYS[4], KEYS[5]
local version, generation = ARGV[3], tonumber(ARGV[4])
local current = tonumber(redis.call('GET', GENERATION) or '0')
if generation < current then
  redis.call('UNLINK', STAGING)
  return {0, current}
end
if redis.call('EXISTS', STAGING) == 0 then
  return redis.error_reply('ERR staged parameters expired before they were committed')
end
redis.call('SET', GENERATION, ARGV[4])
redis.call('RENAME', STAGING, TARGET)
redis.call('PERSIST', TARGET)
redis.call('ZADD', INDEX, ARGV[7], version)
-- What an earlier learner pinned, to judge it, nobody judges any more.
for _, old in ipairs(redis.call('SMEMBERS', PINNED)) do
  local score = redis.call('ZSCORE', INDEX, old)
  if not score or tonumber(score) < generation * tonumber(ARGV[8]) then redis.call('SREM', PINNED, old) end
end
if ARGV[5] == '1' then redis.call('SADD', PINNED, version) end
trim()
redis.call('PUBLISH', ARGV[6], version)
return {1, generation}
