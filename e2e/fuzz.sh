#!/usr/bin/env bash
# Runs every fuzz target of a build for a short while, one on each processor at a time: fuzz.sh BUILD_FOLDER JUNIT_FILE.
# FUZZ_SECONDS (default 10) each. Each begins with what it found before: in this build, and in e2e/corpus/TARGET.zip.
# FUZZ_KEEP=1 puts into that archive what reaches all that is reached now, with as few and as short inputs as it takes.
set -u
build=$1 junit=$2 kept=$(dirname "$0")/corpus
mapfile -t fuzzers < <(grep . "$build/fuzzers")
((${#fuzzers[@]})) || { echo "no fuzz target in $build" >&2; exit 1; }

fuzz() {  # fuzz TARGET: its test case; what it said goes to stderr
  local program corpus="$build/corpus/$1" archive="$kept/$1.zip" failure=
  program=$(find "$build" -type f -name "$1" -perm -u+x | head -n 1)
  mkdir -p "$corpus"
  [[ -e $archive ]] && python3 -m zipfile -e "$archive" "$corpus"
  "$program" -max_total_time="${FUZZ_SECONDS:-10}" -timeout=10 -rss_limit_mb=2048 -artifact_prefix="$build/corpus/$1-" "$corpus" \
    >"$corpus.log" 2>&1 || failure="<failure/>"
  { echo "== $1"; cat "$corpus.log"; } >&2
  if [[ -n ${FUZZ_KEEP:-} && -z $failure ]]; then keep "$1" "$program" "$corpus" >&2; fi
  echo "<testcase classname=\"fuzz\" name=\"$1\">$failure</testcase>"
}

keep() {  # keep TARGET PROGRAM CORPUS
  local few="$3-few"
  rm -rf "$few" && mkdir -p "$few" "$kept"
  "$2" -merge=1 -max_len=4096 "$few" "$3" >"$3-keep.log" 2>&1 && rm -f "$kept/$1.zip" && (cd "$few" && python3 -m zipfile -c "$OLDPWD/$kept/$1.zip" *)
}
export build kept FUZZ_SECONDS FUZZ_KEEP
export -f fuzz keep
cases=$(printf '%s\n' "${fuzzers[@]}" | xargs -P "$(nproc)" -I{} bash -c 'fuzz {}')
echo "<testsuite name=\"fuzz\">$cases</testsuite>" >"$junit"
[[ $cases != *"<failure/>"* && $(grep -c "<testcase" "$junit") == "${#fuzzers[@]}" ]]
