--- @include "refuse"
--- @include "turn"
--- @include "units"

-- Grants a mutex to `claim` if the mutex is free and no other claim is ahead. Otherwise refuses the
-- claim. `others` states whether the key has a queue, permits or a revocation request. `number`
-- chooses the token of the grant. `refuse` describes the other fields of `claim`.
local function acquire_in_turn(claim, held, revoke, news, value, ttl, others, number, ...)
  local lock, queue, places, place = claim.lock, claim.queue, claim.places, claim.place
  local now = math.floor(claim.micros / 1000)
  local called, holder = {}, nil
  local wanted, first, living, cleared = 0, nil, 0, 0
  claim.rank = others and place > 0 and place_of(queue, places, claim.id, now)
  if others and not claim.rank then
    holder = redis.call('GET', lock)
  end
  -- If the claim already holds the lock, for example after a hand-off, other claims do not matter.
  if others and holder ~= value then
    wanted, first, living, cleared = wanted_before(queue, places, claim.rank, 0, now)
    claim.rank = claim.rank and claim.rank - cleared
    if cleared > 0 then
      called = call_up(queue, places, news, 1, 1, now)
    end
  end

  -- The server tracks keys that were read. Redis 7.0 was measured to track all keys of the script.
  -- A claim that waits behind others therefore does not read the lock. A claim without a queue
  -- entry may hold the lock without knowing it.
  if claim.rank and claim.rank > 1 and living > 1 then
    return refuse(claim, { after = -1, left = -1 }, called)
  end

  if holder == nil then
    holder = redis.call('GET', lock)
  end
  if holder and holder ~= value then
    local left = redis.call('PTTL', lock)
    return refuse(claim, { after = left, left = left, holder = string.sub(holder, 1, 512) }, called)
  end
  if not holder and others then
    if last_end(held, now) then
      return redis.error_reply('WRONGTYPE the key is in use as a semaphore or a read-write lock')
    end
    if wanted > 0 then
      local soonest
      called, soonest = call_up(queue, places, news, 0, 0, now)
      return refuse(claim, { after = math.min(first, soonest or first), left = -1 }, called)
    end
  end

  local token, spare = number(...)
  if not token then
    return spare
  end
  redis.call('SET', lock, value, 'PX', ttl)
  if others and not holder then
    -- A revocation request does not apply to a new holder.
    redis.call('DEL', revoke)
    if place > 0 and forget(queue, places, {claim.id}) then
      tell(news, {claim.id})
    end
    called = call_up(queue, places, news, 1, 1, now)
    if redis.call('EXISTS', queue) == 0 then
      redis.call('ZREM', claim.contended, lock)
    end
  end
  -- Read after the write, so that the server notifies this connection when another client changes
  -- the key.
  redis.call('GET', lock)
  return {1, token, spare, unpack(called)}
end
