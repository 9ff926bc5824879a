"""The scripts that run inside a Redis server. Each is one atomic step.

KEYS are the marks, the tombstones and the computations of a checkpoint. A cell is 8 bytes of stamp,
8 of expiry, 4 of version, 1 that says whether it is a tombstone, and the value.

The marks have the number of all cells, which changes in the same step as the cells, and a number
that grows with each change of it. A checkpoint of before that has none, and is not counted.
"""

_HELP = """
local function number(name) return tonumber(redis.call('HGET', KEYS[1], name) or '0') end
local function stamp(cell) return (struct.unpack('>I8', cell)) end
local function is_tombstone(cell) return string.byte(cell, 21) == 1 end
local function word(section, name)
  return string.match(redis.call('INFO', section), name .. ':(%x+)') or ''
end
local function run()
  return word('server', 'run_id') .. '-' .. word('replication', 'master_replid') .. '-'
    .. (redis.call('HGET', KEYS[1], 'made') or '')
end
local function count(more)
  if more ~= 0 and redis.call('HEXISTS', KEYS[1], 'cells') == 1 then
    redis.call('HINCRBY', KEYS[1], 'cells', more)
    redis.call('HINCRBY', KEYS[1], 'counts', 1)
  end
end
"""

MARKS = (
    _HELP
    + """
-- ARGV: a random name, which is taken if there is none yet
if redis.call('HEXISTS', KEYS[1], 'made') == 0 then
  redis.call('HSET', KEYS[1], 'made', ARGV[1])
  if redis.call('EXISTS', KEYS[3]) == 0 then redis.call('HSET', KEYS[1], 'cells', '0') end
end
return {string.format('%.0f', number('applied')), string.format('%.0f', number('floor')), run()}
"""
)

RAISE = (
    _HELP
    + """
-- ARGV: epoch, run. A run that has changed means that what was written may be lost.
if run() ~= ARGV[2] then return 0 end
if number('applied') < tonumber(ARGV[1]) then
  redis.call('HSET', KEYS[1], 'applied', ARGV[1])
end
return 1
"""
)

RAISE_FLOOR = (
    _HELP
    + """
-- ARGV: epoch. The floor is never above the store's own mark (O3).
local floor = math.min(tonumber(ARGV[1]), number('applied'))
if number('floor') < floor then
  redis.call('HSET', KEYS[1], 'floor', string.format('%.0f', floor))
end
return 1
"""
)

PURGE = (
    _HELP
    + """
-- ARGV: how many at most. Which may go is decided by the floor that the store has now.
local floor = number('floor')
local found = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', floor, 'LIMIT', 0, ARGV[1])
local gone = 0
for _, member in ipairs(found) do
  local place, field, owner, marker = unpack(cmsgpack.unpack(member))
  local cell = redis.call('HGET', place, field)
  if cell and is_tombstone(cell) and stamp(cell) <= floor then
    gone = gone + redis.call('HDEL', place, field)
    if marker ~= '' and redis.call('EXISTS', place) == 0 then
      redis.call('HDEL', owner, marker)
    end
  end
  redis.call('ZREM', KEYS[2], member)
end
count(-gone)
return #found
"""
)

_PUT = """
local function put(place, field, owner, marker, cell, epoch)
  redis.call('HSET', place, field, cell)
  if marker ~= '' then redis.call('HSET', owner, marker, '') end
  if is_tombstone(cell) then
    redis.call('ZADD', KEYS[2], epoch, cmsgpack.pack({place, field, owner, marker}))
  end
end
"""

WRITE = (
    _HELP
    + _PUT
    + """
-- ARGV: epoch, then for each cell: computation, owner, place, field, marker, cell (O2)
local epoch, floor, known, new = tonumber(ARGV[1]), number('floor'), {}, 0
for i = 2, #ARGV, 6 do
  local old, may = redis.call('HGET', ARGV[i + 2], ARGV[i + 3]), false
  if old then may = stamp(old) < epoch else may = epoch > floor end
  if may then
    if not old then new = new + 1 end
    put(ARGV[i + 2], ARGV[i + 3], ARGV[i + 1], ARGV[i + 4], ARGV[i + 5], ARGV[1])
    if not known[ARGV[i]] then
      redis.call('SADD', KEYS[3], ARGV[i])
      known[ARGV[i]] = true
    end
  end
end
count(new)
return 1
"""
)

DROP = (
    _HELP
    + _PUT
    + """
-- ARGV: epoch, tombstone, length of the prefix of all names, owner
local epoch, owner = tonumber(ARGV[1]), ARGV[4]
local function bury(place, field, marker)
  if stamp(redis.call('HGET', place, field)) <= epoch then
    put(place, field, owner, marker, ARGV[2], ARGV[1])
  end
end
for _, name in ipairs(redis.call('HKEYS', owner)) do
  if string.sub(name, 1, 1) == 'F' then
    bury(owner, name, '')
  else
    local length = tonumber(ARGV[3])
    local place = string.sub(owner, 1, length) .. 'm:' .. #owner .. ':'
      .. string.sub(owner, length + 1) .. string.sub(name, 2)
    for _, entry in ipairs(redis.call('HKEYS', place)) do bury(place, entry, name) end
  end
end
return 1
"""
)
