--- @include "queue"

-- Refuses `claim`. Keeps a queue entry for it if it waits, and enables the notification that tells
-- it when to try again. The first waiter for a mutex is notified of changes of the lock. All other
-- waiters have a separate notification key.
--
-- claim     id, place: lifetime of its queue entry in ms (0: none), rank: its current position or
--           false, patience, terms: the rest of its record (see `place`), hears_of_lock, micros:
--           the time, and the keys lock, queue, places, own_news, contended
-- obstacle  after: ms until it expires (negative: unknown), left: remaining TTL in ms (negative: no
--           TTL), holder, record: the holder's record as a table
-- called    ids of the woken claims
-- Returns  {0, after, left, holder or false, record or false, remaining ms of the queue entry,
--          number of claims ahead (both -1: no queue entry), ids of the woken claims, …}
local function refuse(claim, obstacle, called)
  local place, rank, queued = claim.place, claim.rank, false
  if place > 0 and claim.patience == 0 then
    queued, rank = true, queue_up(claim, rank)
  elseif place > 0 then
    -- If the memory is full, there is no queue entry, and claims that do not need one poll.
    queued, rank = pcall(queue_up, claim, rank)
  end
  if queued and (rank > 0 or not claim.hears_of_lock) then
    -- The key lives longer than a few attempts, so that it does not have to be written each time.
    if not redis.call('GET', claim.own_news) then
      redis.pcall('SET', claim.own_news, '1', 'PX', 4 * place)
      redis.call('GET', claim.own_news)
    end
  end
  return {
    0, obstacle.after, obstacle.left, obstacle.holder or false, obstacle.record or false,
    queued and place or -1, queued and rank or -1, unpack(called)
  }
end
