package dashboard

import (
	"fmt"
	"html"
	"path/filepath"
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi"
)

// Size of a character in an image.
const (
	charWidth  = 8.4
	lineHeight = 18
)

// imageColors are the colors of the codes that paint uses.
var imageColors = map[string]string{"31": "#ff8a7a", "32": "#4cc9a0", "33": "#e9b44c", "34": "#7db3ff", "2": "#9aa4b2"}

// image draws the lines of a screen, with their styles, as SVG.
func image(title string, lines []string, width int) string {
	var svg strings.Builder
	w, h := float64(width)*charWidth+20, len(lines)*lineHeight+20
	fmt.Fprintf(&svg, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %d\" width=\"%.0f\" height=\"%d\" role=\"img\">\n<title>%s</title>\n", w, h, w, h, html.EscapeString(title))
	svg.WriteString("<rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"#0f1419\"/>\n<g font-family=\"ui-monospace, monospace\" font-size=\"14\" fill=\"#e6eaef\" xml:space=\"preserve\">\n")
	for i, text := range lines {
		drawLine(&svg, text, 10, 10+i*lineHeight)
	}
	svg.WriteString("</g>\n</svg>\n")
	return svg.String()
}

// drawLine draws the parts of a line, each in its style.
func drawLine(svg *strings.Builder, text string, left float64, top int) {
	style, column := "", 0
	for part := range strings.SplitSeq(text, "\x1b[") {
		if code, rest, ok := strings.Cut(part, "m"); ok && strings.Trim(code, "0123456789") == "" && code != "" {
			style, part = code, rest
		}
		n := ansi.StringWidth(part)
		if strings.TrimSpace(part) != "" || style == "7" {
			x := left + float64(column)*charWidth
			attributes := ""
			switch {
			case style == "7":
				fmt.Fprintf(svg, "<rect x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"%d\" fill=\"#e6eaef\"/>", x, top, float64(n)*charWidth, lineHeight)
				attributes = " fill=\"#0f1419\""
			case style == "1":
				attributes = " font-weight=\"bold\""
			case imageColors[style] != "":
				attributes = fmt.Sprintf(" fill=%q", imageColors[style])
			}
			fmt.Fprintf(svg, "<text x=\"%.1f\" y=\"%d\" textLength=\"%.1f\"%s>%s</text>\n", x, top+14, float64(n)*charWidth, attributes, html.EscapeString(part))
		}
		column += n
	}
}

// TestImagesOfTheDocumentation compares the images of docs/images with the screens;
// -update writes them.
func TestImagesOfTheDocumentation(t *testing.T) {
	t.Parallel()
	for name, keys := range map[string][]string{"terminal-deployments": {"j"}, "terminal-rollout": {"5", "enter"}} {
		u := newUser(t, sample(), 120, 30)
		u.m.options.Color, u.m.options.ASCII = true, false
		u.press(keys...)
		golden(t, filepath.Join("..", "..", "docs", "images", name+".svg"), image("tko dashboard", u.m.screen(), 120))
	}
}
