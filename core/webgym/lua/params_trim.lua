-- Shared head of the parameter scripts. KEYS[1]: index, KEYS[2]: pinned.
-- ARGV[1]: how many unpinned versions to keep, ARGV[2]: prefix of the hashes of versions.
local INDEX, PINNED, PREFIX = KEYS[1], KEYS[2], ARGV[2]

local function drop(version)
  redis.call('UNLINK', PREFIX .. version)
  redis.call('ZREM', INDEX, version)
end

local function trim()
  local kept = 0
  for _, version in ipairs(redis.call('ZREVRANGE', INDEX, 0, -1)) do
    if redis.call('SISMEMBER', PINNED, version) == 0 then
      kept = kept + 1
      if kept > tonumber(ARGV[1]) then drop(version) end
    end
  end
end
