-- KEYS: stream. ARGV: cursor, entries to look at, rank, ranks. Returns {cursor to go on from, entry, entry, ...}: of the
-- entries after the cursor those that fall to this rank. One without a part, of an older writer, falls to the first.
local found = redis.call('XRANGE', KEYS[1], '(' .. ARGV[1], '+', 'COUNT', ARGV[2])
local rank, ranks = tonumber(ARGV[3]), tonumber(ARGV[4])
local mine = {ARGV[1]}
for _, entry in ipairs(found) do
  local part = 0
  for i = 1, #entry[2], 2 do
    if entry[2][i] == 'part' then part = tonumber(entry[2][i + 1]) end
  end
  if part % ranks == rank then mine[#mine + 1] = entry end
  mine[1] = entry[1]
end
return mine
