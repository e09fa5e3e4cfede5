-- ARGV: state, how many at most. Returns this server's clock in ms, then for each episode: its name, order, attempt,
-- holder, deadline or time of death in ms (0 while queued), payload, reasons; flat.
local found = {whole(NOW)}
local function tell(episode, time)
  for _, value in ipairs({episode, redis.call('HGET', ORDER, episode) or '', redis.call('HGET', ATTEMPTS, episode) or '0',
    redis.call('HGET', HOLDERS, episode) or '', time, redis.call('HGET', TASKS, episode) or '',
    redis.call('HGET', REASONS, episode) or '[]'}) do
    found[#found + 1] = value
  end
end
local last = tonumber(ARGV[2]) - 1
if ARGV[1] == 'queued' then
  for _, member in ipairs(redis.call('ZRANGE', QUEUED, 0, last)) do
    tell(string.match(member, '^%x+:%l+:(.+)$'), '0')
  end
else
  local rows = redis.call('ZRANGE', ARGV[1] == 'leased' and LEASES or DEAD, 0, last, 'WITHSCORES')
  for i = 1, #rows, 2 do tell(rows[i], rows[i + 1]) end
end
return found
