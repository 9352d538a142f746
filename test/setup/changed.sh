#!/usr/bin/env bash
# Prints the packages whose tests a change can affect, for `make changed`.
#
#   changed.sh [COMMIT]    the change is what differs from COMMIT (HEAD), in commits and in the work tree
#
# A test is affected if its program contains a package with a changed file. Tests that only start programs (below test/) are left
# out, unless they changed themselves: they may depend on everything.
set -euo pipefail
cd "$(dirname "$0")/../.."
export GOFLAGS=-trimpath
module=$(go list -m)
files=$({ git diff --name-only "${1:-HEAD}" -- && git ls-files --others --exclude-standard; } | sort -u)
if grep -qE '^go\.(mod|sum)$' <<<"$files"; then
	go list ./...
	exit
fi
folder() { # of the package that a file is part of: as source, as test data or embedded
	local dir
	dir=$(dirname "$1")
	while [ "$dir" != . ] && ! compgen -G "$dir/*.go" >/dev/null; do dir=$(dirname "$dir"); done
	if [ "$dir" != . ] || [[ $1 == *.go ]]; then echo "$dir"; fi
}
{
	while read -r file; do
		[ -z "$file" ] || folder "$file"
		if [[ $file == *.md ]]; then printf 'test/docs\ntest/conventions\n'; fi
	done <<<"$files"
	[ -z "$files" ] || echo test/conventions
} | sort -u | while read -r dir; do if [ "$dir" = . ]; then echo "$module"; else echo "$module/$dir"; fi; done |
	awk -v starts="^$module/test/" '
		NR == FNR { changed[$0]; next }
		{
			package = $1; affected = package in changed
			for (i = 2; i <= NF && !affected; i++) affected = $i in changed && package !~ starts
			if (affected) print package
		}' - <(go list -e -test -f '{{if eq .Name "main"}}{{if .ForTest}}{{else}}{{.ImportPath}} {{join .Deps " "}}{{end}}{{end}}' ./... |
		sed -nE 's/^([^ ]*)\.test /\1 /p' | sed -E 's/ \[[^]]*\]//g')
