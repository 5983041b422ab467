--- @include "place"
--- @include "crowd"

-- Claims this far back in a queue only keep their place: those that are nearer look after the front.
local NEAR = 128

-- Refuses the claim `id`, whose place is `rank`, if it is far back, for the sake of a living one before all: keeps its place for `place` ms, and arms the key for its
-- news. Nil if it is to be looked at closely. Most of the calls of a long queue end here.
local function keep_far_place(lock, queue, places, own_news, crowd, id, rank, place, micros)
  if rank <= NEAR then
    return nil
  end
  local now = math.floor(micros / 1000)
  local known = redis.call('HMGET', places, redis.call('ZRANGE', queue, 0, 0)[1], id)
  local first, own, units, limit, patience, channel, value = read_place(known[1]), read_place(known[2])
  if first <= now or own <= now or not redis.call('GET', own_news) then
    return nil
  end
  mark(crowd, lock, now + place, now)
  redis.call('HSET', places, id, write_place(now + place, units, limit, patience, channel, value))
  return {0, -1, -1, false, false, place, rank}
end
