-- Releases and acquires many mutexes of one client, in any hash slots of one server of a cluster.
--
-- KEYS  none, because declared keys must be in one slot, but a script may use keys of all slots of
--       the server
-- ARGV  number of locks to release, TTL of the acquired locks in ms, the names of the sets of
--       contended locks and of fences up to the tags of their slots; then for each lock, starting
--       with the locks to release: its key, its value, the rest of these names
-- Returns  for each lock: its first token, 1 if it was released, 0 if it was left alone, or -1 if
--          its slot is on another server or is moving; then for each lock the number of spare
--          tokens. Each lock that was left alone needs its own script.
--
-- If a command fails, its lock is left alone, and the script continues with the next lock.
local try, words, leaving = redis.pcall, ARGV, tonumber(ARGV[1])
local ttl, contended_of, fence_of = ARGV[2], ARGV[3], ARGV[4]

--- @include "time"
local now = token_at(clock())
local time = digits(now)
-- The maximum number of spare tokens of one lock (`LockOptions::hand_over`).
local SPARE = 65535

-- Returns the first token of a grant whose last token is the current time. Returns nil if this is
-- not larger than the previous token. `acquire` chooses the token in that case.
local function number(fence)
  local last = try('SET', fence, time, 'GET')
  if not last then
    return now
  end
  local known = tonumber(last)
  if known and known < now then
    return math.max(known + 1, now - SPARE)
  end
  if not last.err then
    try('SET', fence, last)
  end
end

local reply, spares, count = {}, {}, (#words - 4) / 3
for n = 1, count do
  local at = 3 * n + 2
  local lock, value, tag = words[at], words[at + 1], words[at + 2]
  local contended_exists, outcome, spare = try('EXISTS', contended_of .. tag), 0, 0
  if contended_exists ~= 0 then
    -- While a slot moves, the server rejects commands for missing keys. If there is no such set,
    -- all keys of the slot are therefore here.
    outcome = contended_exists == 1 and 0 or -1
  elseif n <= leaving then
    outcome = try('GET', lock) == value and try('DEL', lock) == 1 and 1 or 0
  else
    -- The token is chosen first, because a lock must not exist without a token.
    local first = number(fence_of .. tag)
    local stored = first and try('SET', lock, value, 'PX', ttl, 'NX')
    if stored and stored.ok then
      outcome, spare = first, now - first
    end
  end
  reply[n], spares[n] = outcome, spare
end
for n = 1, count do
  reply[count + n] = spares[n]
end
return reply
