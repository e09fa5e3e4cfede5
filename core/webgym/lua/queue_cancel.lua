-- ARGV: purpose. Removes its queued episodes. Returns how many.
local cancelled = 0
for _, member in ipairs(redis.call('ZRANGE', QUEUED, 0, -1)) do
  local purpose, episode = string.match(member, '^%x+:(%l+):(.+)$')
  if purpose == ARGV[1] then
    dequeue(member)
    forget(episode)
    cancelled = cancelled + 1
  end
end
count(ARGV[1], 'queued', -cancelled)
finish()
return cancelled
