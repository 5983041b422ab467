-- Before anything else is set up, see `keep_place`.
local micros = clock()
local now = math.floor(micros / 1000)
if ARGV[6] ~= '0' then
  local refusal = keep_place(KEYS, ARGV[1], KEYS[9], KEYS[10], tonumber(ARGV[6]), now)
  if refusal then
    return refusal
  end
end
