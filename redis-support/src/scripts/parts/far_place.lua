--- @include "place"

-- Refuses a claim that is far back in the queue, for the sake of a living one before all: keeps its place, which is `rank`, and arms the key for its
-- news. Claims that are nearer look after the front. Nil if it is to be looked at closely, as when the queue would end before its places. Most of
-- the calls of a long queue end here. For the fields of the claim see `refuse`.
local function keep_far_place(claim, rank)
  local queue, places, place, now = claim.queue, claim.places, claim.place, math.floor(claim.micros / 1000)
  local known = redis.call('HMGET', places, redis.call('ZRANGE', queue, 0, 0)[1], claim.id)
  local first, own = read_place(known[1]), read_place(known[2])
  if first <= now or own <= now or not redis.call('GET', claim.own_news) or redis.call('PTTL', queue) < place then
    return nil
  end
  redis.call('HSET', places, claim.id, write_place(now + place, unpack(claim.terms)))
  return {0, -1, -1, false, false, place, rank}
end
