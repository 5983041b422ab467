-- Releases a mutex, or removes a queue entry.
--
-- KEYS  lock; optionally: queue, places, news
-- ARGV  value, id
-- Returns  1: released; 0: the key does not contain this lock, and its queue entry was removed. The
--          ids of the woken claims may follow.
--
-- Uses only commands that work when the memory is full.
local lock, queue, places, news = unpack(KEYS)
local value, id = unpack(ARGV)
local is_held = redis.call('GET', lock) == value
-- A lock without waiters is handled first, because preparing the remaining cases takes longer than
-- this.
if is_held and not (queue and redis.call('EXISTS', queue) == 1) then
  return redis.call('DEL', lock)
end
if not queue then
  return redis.error_reply('TRYAGAIN its place in the queue is not at hand')
end

--- @include "grant_next"
local now = math.floor(clock() / 1000)
if not is_held then
  if not forget(queue, places, {id}) then
    return 0
  end
  tell(news, {id})
  return with_called(0, (call_up(queue, places, news, redis.call('EXISTS', lock), 1, now)))
end
local is_kept, ids, records = grant_next(lock, queue, places, front(queue), now)
if is_kept then
  return with_called(1, (call_up(queue, places, news, 1, 1, now, ids, records)))
end
redis.call('DEL', lock)
return with_called(1, (call_up(queue, places, news, 0, 1, now)))
