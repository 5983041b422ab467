--- @include "place"

-- Refuses a claim that is far back in the queue with the position `rank`, behind at least one
-- living claim. Keeps its queue entry, and enables its notification. Claims that are nearer watch
-- the front. Returns nil if the claim must be checked in detail, for example because the queue
-- would expire before its entries. Most calls of a long queue end here. `refuse` describes the
-- fields of the claim.
local function keep_back_of_queue(claim, rank)
  local queue, places, place, now = claim.queue, claim.places, claim.place, math.floor(claim.micros / 1000)
  local known = redis.call('HMGET', places, redis.call('ZRANGE', queue, 0, 0)[1], claim.id)
  local first, own = read_place(known[1]), read_place(known[2])
  if first <= now or own <= now or not redis.call('GET', claim.own_news) or redis.call('PTTL', queue) < place then
    return nil
  end
  redis.call('HSET', places, claim.id, write_place(now + place, unpack(claim.terms)))
  return {0, -1, -1, false, false, place, rank}
end
