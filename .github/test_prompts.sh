#!/usr/bin/env bash
# The steps of action.yml: check the prompts, test them, write the job summary, and comment what changed.
#
# PATHS, AGAINST and OPTIONS are the Action's inputs. With PULL_REQUEST, the number of a pull request, the changed cases
# become a comment. prompty runs without TOKEN, which only the comment needs.
set -euo pipefail
export -n TOKEN
scripts="$(dirname "${BASH_SOURCE[0]}")"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
read -r -a paths <<< "${PATHS:-.}"
read -r -a options <<< "${OPTIONS:-}"
if [ -n "${AGAINST:-}" ]; then options+=(--against "$AGAINST"); fi

check=0 test=0
prompty check "${paths[@]}" > "$work/check.txt" || check=$?
cat "$work/check.txt"
# Answers can be long. What failed or flipped is what a reader of the log wants.
touch "$work/tests.md"
GITHUB_STEP_SUMMARY="$work/tests.md" prompty test "${paths[@]}" --quiet --github "${options[@]}" || test=$?

{
    cat "$work/tests.md"
    if [ "$check" != 0 ]; then
        printf '\n## Problems\n\n<pre>\n'
        sed 's/&/\&amp;/g; s/</\&lt;/g' "$work/check.txt"
        printf '</pre>\n'
    fi
} >> "${GITHUB_STEP_SUMMARY:-/dev/null}"

if [ -n "${PULL_REQUEST:-}" ]; then
    TOKEN="${TOKEN:-}" python3 -I "$scripts/comment_changes.py" "$work/tests.md" ||
        echo "::warning::The cases that changed could not be commented. The job needs the permission pull-requests: write."
fi
[ "$check" = 0 ] && [ "$test" = 0 ]
