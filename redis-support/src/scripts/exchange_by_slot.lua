-- Releases and acquires many mutexes of one client, in any hash slots of one server of a cluster.
--
-- KEYS  none: declared keys have to lie in one slot, while a script may use those of all slots of the server
-- ARGV  how many locks to release, TTL of the others in ms, the names of crowds and of fences up to their slots' tags; then for each lock, first
--       those to release: its key, its value, the rest of those names
-- Returns  for each lock its first token, or 1 if it was released, or 0 if it was left alone, or -1 if its slot is elsewhere or on its way;
--          then for each lock how many spare tokens it has. Each lock that was left alone takes a script of its own.
--
-- A command that fails leaves its lock alone, and does not keep the script from the others.
local try, words, leaving = redis.pcall, ARGV, tonumber(ARGV[1])
local ttl, crowd_of, fence_of = ARGV[2], ARGV[3], ARGV[4]

--- @include "time"
local now = token_at(clock())
local time = digits(now)
-- One lock may have so many beside its first (`LockOptions::hand_over`).
local SPARE = 65535

-- The first token of a grant, of which the last is the time; nil if that is not larger than the last one before. `acquire` numbers such grants.
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
  local crowds, outcome, spare = try('EXISTS', crowd_of .. tag), 0, 0
  if crowds ~= 0 then
    -- In a slot on its way, the server refuses to look for a key that it does not have. So if there is no crowd, all keys of the slot are here.
    outcome = crowds == 1 and 0 or -1
  elseif n <= leaving then
    outcome = try('GET', lock) == value and try('DEL', lock) == 1 and 1 or 0
  else
    -- The number comes first, since there is no lock without a token.
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
