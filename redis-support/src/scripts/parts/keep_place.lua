-- Claims this far back in a queue only keep their place: those that are nearer look after the front.
local NEAR = 128

-- Refuses a claim that is far back, for the sake of a living one before all: keeps its place for `place` ms, and arms the key for its
-- news. Nil if it is to be looked at closely. Decided before anything else is set up: most of the calls of a long queue end here.
-- See `queue` and `wait_turn`. `keys`: lock, …, queue (the fourth), …, places (the sixth).
local function keep_place(keys, id, news, crowd, place, now)
  local queue, places = keys[4], keys[6]
  local rank = redis.call('ZRANK', queue, id)
  if not rank or rank <= NEAR then
    return nil
  end
  local known = redis.call('HMGET', places, redis.call('ZRANGE', queue, 0, 0)[1], id)
  local first, own = string.match(known[1] or '', '^%d+'), string.match(known[2] or '', '^%d+')
  if not first or not own or tonumber(first) <= now or tonumber(own) <= now or not redis.call('GET', news) then
    return nil
  end
  mark(crowd, keys[1], now + place, now)
  redis.call('HSET', places, id, digits(now + place) .. string.sub(known[2], #own + 1))
  return {0, -1, -1, false, false, place, rank}
end
