-- ARGV: episodes; none for all. Puts dead letters back with a clean slate. Returns how many.
local episodes = #ARGV > 0 and ARGV or redis.call('ZRANGE', DEAD, 0, -1)
local requeued = 0
for _, episode in ipairs(episodes) do
  if redis.call('ZREM', DEAD, episode) == 1 then
    redis.call('HDEL', REASONS, episode)
    count(purpose_of(redis.call('HGET', ORDER, episode)), 'dead', -1)
    enqueue(episode)
    requeued = requeued + 1
  end
end
finish()
return requeued
