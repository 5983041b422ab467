-- Releases permits, or removes a queue entry.
--
-- KEYS  held, units; optionally: queue, places, news
-- ARGV  id
-- Returns  1: released; 0: this lease is not in force, and its queue entry was removed. The ids of
--          the woken claims may follow.
local held, units, queue, places, news = unpack(KEYS)
local id = ARGV[1]

--- @include "time"
--- @include "lease"
local ends = redis.call('ZSCORE', held, id)
if not ends and not queue then
  return redis.error_reply('TRYAGAIN its place in the queue is not at hand')
end
local is_queued = queue and redis.call('EXISTS', queue) == 1
if not ends and not is_queued then
  return 0
end
local now = math.floor(clock() / 1000)
local used = 0
if ends then
  -- Counted first, because the key disappears with its last element. While its slot moves, the
  -- server ends a script with a missing key.
  local is_last = redis.call('ZCARD', held) == 1
  -- This write works when the memory is full. After it, all later writes work too, because the
  -- server never ends a script halfway.
  redis.call('ZREM', held, id)
  local freed = units_of(redis.call('HGET', units, id))
  if is_last then
    redis.call('DEL', units)
  elseif freed then
    redis.call('HDEL', units, id, 'asked ' .. id)
    used = redis.call('HINCRBY', units, 'used', digits(-freed))
  end
  if news then
    redis.call('DEL', news)
  end
end
local outcome = ends and tonumber(ends) > now and 1 or 0
-- A lock without waiters is completed first, because preparing the remaining cases takes longer
-- than this.
if not is_queued then
  return outcome
end

--- @include "turn"
local has_left = forget(queue, places, {id})
if has_left then
  tell(news, {id})
end
if not ends and not has_left then
  return 0
end
if not ends then
  used = tonumber(redis.call('HGET', units, 'used') or 0)
end
return with_called(outcome, (call_up(queue, places, news, used, 1, now)))
