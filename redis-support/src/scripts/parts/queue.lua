--- @include "time"
--- @include "place"
--- @include "contended"
-- A queue consists of a sorted set of ids in the order of their arrival, and a hash with the record
-- of each queue entry.

-- How many living entries one attempt reads. Claims further back wait until they are nearer.
local LOOKAHEAD = 128
-- About how many expired entries one attempt removes. This takes the server some milliseconds.
local CLEARED = 4096
-- How many of the first entries every attempt reads, to determine when to try again.
local FIRST = 4

-- Removes these ids from the queue. Returns whether any of them was queued. If the queue is empty
-- now, all of its keys are removed. The queue is not empty if `others` stay in it. Uses only
-- commands that work when the memory is full.
local function forget(queue, places, ids, others)
  local stood = redis.call('ZREM', queue, unpack(ids)) > 0
  if stood and not others and redis.call('EXISTS', queue) == 0 then
    redis.call('DEL', places)
  elseif stood then
    redis.call('HDEL', places, unpack(ids))
  end
  return stood
end

-- Returns the position of `id` from the front, or false. An expired entry is removed first.
local function place_of(queue, places, id, now)
  local rank = redis.call('ZRANK', queue, id)
  if rank and read_place(redis.call('HGET', places, id)) <= now then
    forget(queue, places, {id})
    return false
  end
  return rank
end

-- Reads the entries before `rank` from the front, or all entries if `rank` is false. Reads at least
-- the first few entries, and stops when the entries request more than `room` permits. Removes
-- expired entries. Returns the number of requested permits, the ms until the first entry expires,
-- the number of living entries, and the number of removed entries.
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
      -- There are more entries, so the claim must try again immediately.
      wanted, first = math.huge, now
    end
  end
  return wanted, first and first - now, living, cleared
end

-- Keeps the entry of `claim` at `rank`, or appends an entry to the queue if `rank` is false.
-- Returns its position from the front. `refuse` describes the fields of the claim.
local function queue_up(claim, rank)
  local queue, places, place, now = claim.queue, claim.places, claim.place, math.floor(claim.micros / 1000)
  -- The queue and the lock's mark in the set `contended` expire later than the entry, so that they
  -- do not have to be written each time.
  local ends_first = redis.call('PTTL', queue) < place
  if ends_first then
    mark(claim.contended, claim.lock, now + 2 * place, now)
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
