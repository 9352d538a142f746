package monitoring

import (
	"testing"

	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
)

var _ = promqltest.LoadedStorage
var _ promql.Engine
var _ = rulefmt.Parse
var _ parser.Expr

func TestX(t *testing.T) {}
