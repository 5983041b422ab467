--- @include "place"

-- Refuses the claim `id`, which is far back in the queue, for the sake of a living one before all: keeps its place, which is `rank`, for `place` ms, and
-- arms the key for its news. Claims that are nearer look after the front. Nil if it is to be looked at closely, as when the queue would end before its
-- places. Most of the calls of a long queue end here.
local function keep_far_place(queue, places, own_news, id, rank, place, micros)
  local now = math.floor(micros / 1000)
  local known = redis.call('HMGET', places, redis.call('ZRANGE', queue, 0, 0)[1], id)
  local first, own, units, limit, patience, channel, value = read_place(known[1]), read_place(known[2])
  if first <= now or own <= now or not redis.call('GET', own_news) or redis.call('PTTL', queue) < place then
    return nil
  end
  redis.call('HSET', places, id, write_place(now + place, units, limit, patience, channel, value))
  return {0, -1, -1, false, false, place, rank}
end
