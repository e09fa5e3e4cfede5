-- ARGV: how many done ids to keep, then for each: episode, attempt, summary, n, and n times name, value.
-- Returns 1 or 0 for each. Only the current attempt of an episode that is not yet done or dead counts, so each
-- episode counts once. An attempt whose lease expired counts as long as nobody was given the next one.
local accepted, sums, any = {}, {}, false
local i = 2
while i <= #ARGV do
  local episode, attempt, summary, n = ARGV[i], ARGV[i + 1], ARGV[i + 2], tonumber(ARGV[i + 3])
  i = i + 4
  local ok = 0
  if redis.call('HGET', ATTEMPTS, episode) == attempt then
    local order = redis.call('HGET', ORDER, episode)
    local purpose = purpose_of(order)
    if redis.call('ZSCORE', LEASES, episode) then
      unlease(episode, purpose)
      ok = 1
    elseif dequeue(string.match(order, ' (.+)$')) then
      count(purpose, 'queued', -1)
      ok = 1
    end
    if ok == 1 then
      any = true
      forget(episode)
      count(purpose, 'done', 1)
      redis.call('ZADD', DONE, whole(NOW), episode)
      redis.call('XADD', RESULTS, '*', 'kind', 'done', 'episode', episode, 'attempt', attempt, 'summary', summary)
      for j = i, i + 2 * n - 1, 2 do
        sums[ARGV[j]] = (sums[ARGV[j]] or 0) + tonumber(ARGV[j + 1])
      end
    end
  end
  i = i + 2 * n
  accepted[#accepted + 1] = ok
end
if any then
  for name, by in pairs(sums) do
    redis.call('HINCRBYFLOAT', COUNTERS, name, string.format('%.17g', by))
  end
  redis.call('ZREMRANGEBYRANK', DONE, 0, -(tonumber(ARGV[1]) + 1))
  finish()
end
return accepted
