-- KEYS: lock, fence, held, queue, revoke, of one claim after the other.
-- ARGV: value, TTL in ms, how many spare tokens are wanted, of one claim after the other.
-- Of each, one after the other: its token and how many more it has; or nil and 0, and then it is to be asked for by itself:
-- somebody else is about, or something is wrong.
-- What can be done for all of them by one command takes a fraction of the time.
local call, keys, args = redis.call, KEYS, ARGV
local count = #args / 3
local others = {}
for n = 1, count do
  local key = 5 * n - 5
  others[3 * n - 2], others[3 * n - 1], others[3 * n] = keys[key + 3], keys[key + 4], keys[key + 5]
end
local is_crowded = call('EXISTS', unpack(others)) > 0

local reply, granted, locks, fences = {}, {}, {}, {}
for n = 1, count do
  local key, arg = 5 * n - 5, 3 * n - 3
  reply[2 * n - 1], reply[2 * n] = false, 0
  local is_alone = not is_crowded or call('EXISTS', keys[key + 3], keys[key + 4], keys[key + 5]) == 0
  if is_alone and call('SET', keys[key + 1], args[arg + 1], 'PX', args[arg + 2], 'NX') then
    granted[#granted + 1] = n
    locks[#locks + 1] = keys[key + 1]
    fences[#fences + 1] = keys[key + 2]
  end
end
if #granted == 0 then
  return reply
end

-- Gives them their tokens. Several locks may have one fence. One that is missing may be something else than a number, which must
-- not be written over.
local function number_all()
  local micros = clock()
  -- Nearly always it is the token, and to make a text of it takes time.
  local now = digits(micros)
  local last, ordered = {}, {}
  for i, number in ipairs(call('MGET', unpack(fences))) do
    last[fences[i]] = number
  end
  for i, n in ipairs(granted) do
    local known = last[fences[i]]
    local first, token
    if known then
      first, token = tokens_after(known, micros, tonumber(args[3 * n]))
    end
    if first then
      last[fences[i]] = token
      ordered[#ordered + 1] = fences[i]
      ordered[#ordered + 1] = token == micros and now or digits(token)
      reply[2 * n - 1], reply[2 * n] = first, token - first
    else
      -- There is no lock without a token.
      call('DEL', locks[i])
    end
  end
  if #ordered > 0 then
    call('MSET', unpack(ordered))
  end
end

local numbered, failure = pcall(number_all)
if not numbered then
  -- There is no lock without a token. What this takes may be forbidden, and is not needed by those who ask by themselves.
  call('DEL', unpack(locks))
  error(failure, 0)
end
-- Read after the write, so that the server tells this connection when anybody changes the keys.
call('EXISTS', unpack(locks))
return reply
