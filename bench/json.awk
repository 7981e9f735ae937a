# SPDX-License-Identifier: BSD-2-Clause
#
# What a line of the benchmarks' results has for a key: for those who read them with awk.

function text(key,    from) {
    if (!match($0, "\"" key "\":\"[^\"]*\""))
        return ""
    from = RSTART + length(key) + 4
    return substr($0, from, RSTART + RLENGTH - 1 - from)
}
function number(key) {
    if (!match($0, "\"" key "\":[-+0-9.e]*"))
        return 0
    return substr($0, RSTART + length(key) + 3, RLENGTH - length(key) - 3) + 0
}
