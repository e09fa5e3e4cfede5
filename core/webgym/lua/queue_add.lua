-- ARGV: for each task: episode, purpose, score, payload. Returns how many were new.
local last = tonumber(redis.call('HINCRBY', TALLY, 'counter', #ARGV / 4))
local counter = last - #ARGV / 4
local added = 0
for i = 1, #ARGV, 4 do
  local episode, purpose, score, payload = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]
  counter = counter + 1
  if not redis.call('ZSCORE', DONE, episode) and redis.call('HSETNX', TASKS, episode, payload) == 1 then
    local member = string.format('%016.0f', counter) .. ':' .. purpose .. ':' .. episode
    redis.call('HSET', ORDER, episode, score .. ' ' .. member)
    enqueue(episode)
    added = added + 1
  end
end
finish()
return added
