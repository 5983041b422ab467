-- Gives up the place of `id` in the queue, and tells those behind it.
-- Uses no command that fails when memory is full.
local function leave(queue, places, news, id)
  if redis.call('ZREM', queue, id) == 1 then
    redis.call('HDEL', places, id)
    redis.call('DEL', news)
  end
end
