#!/bin/sh
# Replays dead letters. The flags are those of the script that it replaces:
#
#   ./replay-dlq.sh --error-type TYPE --start-date TIME --end-date TIME --batch-size N --dry-run true
#
# Every other flag of 'redrive replay' works as well. A dry run is '--dry-run true', or '--dry-run'
# alone. The command is $REDRIVE if that is set, else the one of .venv beside this script, else the
# one on the PATH. Exit: 0 all were sent or need not be, 1 some were not, 2 wrong use, 3 no letter
# matches, 130 interrupted; see docs/how-to/replay.md.
set -eu

fail() {
    printf 'replay-dlq.sh: %s\n' "$1" >&2
    exit 2
}

dry_run=false
left=$#
while [ "$left" -gt 0 ]; do
    argument=$1
    shift
    left=$((left - 1))
    case $argument in
    --dry-run)
        dry_run=true
        if [ "$left" -gt 0 ]; then
            case $1 in
            true | false)
                dry_run=$1
                shift
                left=$((left - 1))
                ;;
            -*) ;;
            *) fail "--dry-run: expected true or false, got '$1'" ;;
            esac
        fi
        ;;
    --dry-run=true | --dry-run=false) dry_run=${argument#--dry-run=} ;;
    --dry-run=*) fail "--dry-run: expected true or false, got '${argument#--dry-run=}'" ;;
    --error-type | --start-date | --end-date | --batch-size)
        [ "$left" -gt 0 ] || fail "$argument: expected a value"
        set -- "$@" "$argument" "$1"
        shift
        left=$((left - 1))
        ;;
    *) set -- "$@" "$argument" ;;
    esac
done
if [ "$dry_run" = true ]; then
    set -- "$@" --dry-run
fi

beside=$(dirname -- "$0")/.venv/bin/redrive
if [ -n "${REDRIVE:-}" ]; then
    redrive=$REDRIVE
elif [ -x "$beside" ]; then
    redrive=$beside
else
    redrive=redrive
fi
command -v "$redrive" >/dev/null || fail "there is no command '$redrive'; install Redrive, or set REDRIVE"
exec "$redrive" replay "$@"
