#!/bin/sh
# A validate plugin that minds namespaces named "bad".
if grep -q 'name: bad'; then
	echo 'error: the namespace has a bad name'
else
	echo '{}'
fi
