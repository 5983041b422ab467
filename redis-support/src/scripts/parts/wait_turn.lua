-- Whether two queue before `id`. Without a place it may hold the lock, and not know it.
local function is_far_back(queue, places, id, now)
  local rank = place_of(queue, places, id, now)
  return rank and rank > 1 and wanted_before(queue, places, id, now) > 1
end

-- Refuses: keeps a place for who will wait, and has the server tell it when to look again.
local function wait_turn(keys, args, id, place, patience, micros, refusal)
  if place == 0 then
    return refusal
  end
  local rank
  if patience > 0 then
    local known = '1 ' .. patience
    if args[7] then
      local ttl = digits(math.min(args[2], place))
      known = table.concat({known, digits(micros), ttl, args[3], args[7], args[1]}, ' ')
    end
    local queued
    queued, rank = pcall(queue_up, keys[4], keys[6], id, known, place, micros)
    if not queued then
      -- When memory is full there is no place, and those who would do without one poll.
      return refusal
    end
  else
    rank = queue_up(keys[4], keys[6], id, '1', place, micros)
  end
  if rank > 0 then
    redis.pcall('SET', keys[8], '1', 'NX', 'PX', place)
    redis.call('GET', keys[8])
  end
  if patience > 0 then
    refusal[5] = place
    refusal[6] = args[7] and micros
  end
  return refusal
end
