--- @include "time"
--- @include "place"
--- @include "crowd"
-- A queue is a sorted set of ids in the order of their coming, and a hash with the record of each one's place.

-- Living places that one attempt reads. Claims further back wait until they have come nearer.
local LOOKAHEAD = 128
-- Ended places that one attempt clears, nearly: some milliseconds of the server's time.
local CLEARED = 4096
-- Every attempt reads so many of the first places: by them it tells when to look again.
local FIRST = 4

-- Takes these out of the queue, and tells whether any of them stood there. Nothing is left of an empty queue, which it is not if `others`
-- stay in it.
-- Uses no command that fails when memory is full.
local function forget(queue, places, ids, others)
  local stood = redis.call('ZREM', queue, unpack(ids)) > 0
  if stood and not others and redis.call('EXISTS', queue) == 0 then
    redis.call('DEL', places)
  elseif stood then
    redis.call('HDEL', places, unpack(ids))
  end
  return stood
end

-- The place of `id` from the front, or false. One that has ended is given up first.
local function place_of(queue, places, id, now)
  local rank = redis.call('ZRANK', queue, id)
  if rank and read_place(redis.call('HGET', places, id)) <= now then
    forget(queue, places, {id})
    return false
  end
  return rank
end

-- Reads the places before `rank`, or all if that is false, from the front: the first few, and more until they want more than `room`
-- units. Clears those that have ended. Returns how many units the others want, in how many ms the first of them ends, how many of them
-- there are, and how many were cleared.
local function wanted_before(queue, places, rank, room, now)
  local count = rank or redis.call('ZCARD', queue)
  local wanted, first, living, cleared = 0, nil, 0, 0
  local chunk = FIRST
  while living < count and (chunk == FIRST or wanted <= room) do
    local ids = redis.call('ZRANGE', queue, living, living + math.min(chunk, count - living) - 1)
    if not ids[1] then
      break
    end
    local gone = {}
    for i, record in ipairs(redis.call('HMGET', places, unpack(ids))) do
      local ends, units = read_place(record)
      if ends > now then
        living = living + 1
        wanted = wanted + units
        first = math.min(first or ends, ends)
      else
        gone[#gone + 1] = ids[i]
      end
    end
    if gone[1] then
      forget(queue, places, gone)
      count = count - #gone
      cleared = cleared + #gone
    end
    chunk = math.min(4 * chunk, 1024)
    if living > LOOKAHEAD then
      wanted = math.huge
    elseif cleared >= CLEARED and living < count then
      -- There are more: it is to look again at once.
      wanted, first = math.huge, now
    end
  end
  return wanted, first and first - now, living, cleared
end

-- Keeps the place of `claim`, which is `rank`, or gives it one at the end of the queue if that is false; returns its rank from the front.
-- For the fields of the claim see `refuse`.
local function queue_up(claim, rank)
  local queue, places, place, now = claim.queue, claim.places, claim.place, math.floor(claim.micros / 1000)
  -- The queue, and the mark of the lock in the crowd, last longer than the place, so that this is not done each time.
  local ends_first = redis.call('PTTL', queue) < place
  if ends_first then
    mark(claim.crowd, claim.lock, now + 2 * place, now)
  end
  if not rank then
    rank = redis.call('ZCARD', queue)
    local last = rank > 0 and redis.call('ZRANGE', queue, -1, -1, 'WITHSCORES')[2] or 0
    redis.call('ZADD', queue, digits(math.max(last + 1, claim.micros)), claim.id)
  end
  redis.call('HSET', places, claim.id, write_place(now + place, unpack(claim.terms)))
  if ends_first then
    redis.call('PEXPIRE', queue, digits(2 * place))
    redis.call('PEXPIRE', places, digits(2 * place))
  end
  return rank
end
