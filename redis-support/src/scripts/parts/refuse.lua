--- @include "queue"

-- Refuses `claim`: keeps a place for it if it waits, and has the server tell it when to look again. The first waiter for a mutex hears of
-- the lock; all others have a key of their own.
--
-- claim     id, place: ms for which its place is kept (0: none), rank: its present place or false, patience, terms: the rest
--           of its record (see `place`), hears_of_lock, micros: the time, and the keys lock, queue, places, own_news, crowd
-- obstacle  after: ms until it ends by itself (negative: unknown), left: remaining TTL in ms (negative: for ever), holder, record: the
--           holder's record, as a table
-- called    ids of the claims that were called up
-- Returns  {0, after, left, holder or false, record or false, ms for which the claim has a place, number of claims before it (both -1: it
--          has none), the ids that were called up, …}
local function refuse(claim, obstacle, called)
  local place, rank, queued = claim.place, claim.rank, false
  if place > 0 and claim.patience == 0 then
    queued, rank = true, queue_up(claim, rank)
  elseif place > 0 then
    -- When memory is full there is no place, and those that would do without one poll.
    queued, rank = pcall(queue_up, claim, rank)
  end
  if queued and (rank > 0 or not claim.hears_of_lock) then
    -- It outlasts a few attempts, so that it need not be written each time.
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
