-- Before the lock is stored, since it may be forbidden.
local micros = clock()
-- No client holds the lock, waits for it or asks for it: decided before any other work, which takes longer than this. The lock is
-- looked at only if the queue is empty, see below.
local others = redis.call('EXISTS', KEYS[3], KEYS[4], KEYS[5]) > 0
if not others then
  local stored = redis.pcall('SET', KEYS[1], ARGV[1], 'PX', ARGV[2], 'NX')
  if stored and stored.ok then
    local numbered, token, spare = pcall(number_grant, KEYS[2], micros, tonumber(ARGV[3]))
    if numbered and token then
      redis.call('ZREM', KEYS[9], KEYS[1])
      -- Read after the write, so that the server tells this connection when anybody changes the key.
      redis.call('GET', KEYS[1])
      return {1, token, spare}
    end
    -- There is no lock without a token. The script reports the failure below.
    redis.call('DEL', KEYS[1])
  end
elseif ARGV[5] ~= '0' then
  local refusal = keep_place(KEYS, ARGV[4], KEYS[8], KEYS[9], tonumber(ARGV[5]), math.floor(micros / 1000))
  if refusal then
    return refusal
  end
end
