package dashboard

import (
	"slices"
	"strings"
	"unicode"

	tea "charm.land/bubbletea/v2"
)

// maxInput is the greatest length of an input, in characters.
const maxInput = 2000

// An input is a line of text that the user edits.
type input struct {
	prompt string
	runes  []rune
	at     int // where the next character goes
}

func newInput(prompt, text string) *input {
	runes := []rune(text)
	return &input{prompt: prompt, runes: runes, at: len(runes)}
}

func (i *input) text() string { return string(i.runes) }

func (i *input) insert(text string) {
	added := []rune(strings.Map(func(c rune) rune {
		if unicode.IsPrint(c) {
			return c
		}
		return -1
	}, text))
	added = added[:min(len(added), maxInput-len(i.runes))]
	i.runes = slices.Insert(i.runes, i.at, added...)
	i.at += len(added)
}

// remove removes characters before or after the place.
func (i *input) remove(before, after int) {
	from, to := max(0, i.at-before), min(len(i.runes), i.at+after)
	i.runes = slices.Delete(i.runes, from, to)
	i.at = from
}

// word returns the length of the word before the place.
func (i *input) word() int {
	n := i.at
	for n > 0 && i.runes[n-1] == ' ' {
		n--
	}
	for n > 0 && i.runes[n-1] != ' ' {
		n--
	}
	return i.at - n
}

func (i *input) key(k tea.KeyPressMsg) {
	switch k.String() {
	case "left", "ctrl+b":
		i.at = max(0, i.at-1)
	case "right", "ctrl+f":
		i.at = min(len(i.runes), i.at+1)
	case "home", "ctrl+a":
		i.at = 0
	case "end", "ctrl+e":
		i.at = len(i.runes)
	case "backspace", "ctrl+h":
		i.remove(1, 0)
	case "delete", "ctrl+d":
		i.remove(0, 1)
	case "ctrl+w":
		i.remove(i.word(), 0)
	case "ctrl+u":
		i.remove(i.at, 0)
	case "ctrl+k":
		i.remove(0, len(i.runes)-i.at)
	default:
		i.insert(k.Text)
	}
}

// complete completes the word at the end to the only one of the words that begins so.
func (i *input) complete(words []string) {
	if i.at != len(i.runes) {
		return
	}
	begun := string(i.runes[i.at-i.word():])
	if begun == "" || strings.ContainsAny(begun, " =") {
		return
	}
	var match []string
	for _, word := range words {
		if strings.HasPrefix(word, begun) {
			match = append(match, word)
		}
	}
	if len(match) == 1 {
		i.insert(match[0][len(begun):] + "=")
	}
}
