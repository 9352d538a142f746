package kubeapi

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	apiopenapi "k8s.io/apiserver/pkg/endpoints/openapi"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/util/compatibility"
	"k8s.io/client-go/kubernetes"
	clientrest "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/api/v1alpha1"
	"github.com/tko-orchestrator/tko/internal/certs"
	"github.com/tko-orchestrator/tko/internal/kubeapi/openapi"
	"github.com/tko-orchestrator/tko/internal/logging"
	"github.com/tko-orchestrator/tko/internal/turn"
)

// Options are the settings of a [Server].
type Options struct {
	Listeners []net.Listener // listeners to serve; the server closes them

	// CertFile and KeyFile are the paths of the certificate and key, read again
	// when they change. If empty, the certificate is self-signed, for localhost.
	CertFile, KeyFile string

	// Trusting disables authentication and authorization: every client may do
	// everything. For loopback only.
	Trusting bool
	// Kubeconfig is the path of the kubeconfig for the management cluster, which
	// authenticates and authorizes users. If empty: the cluster that this process
	// runs in. Not used if Trusting.
	Kubeconfig string
	// Authorizer, if not nil, authorizes users instead of that cluster.
	Authorizer authorizer.Authorizer

	Audit Audit
	// Bookmarks is the interval of bookmarks for watchers that request them, also
	// without changes, so that they can resume; 30 s if zero.
	Bookmarks time.Duration
	Watches   WatchLimits
	Turns     *turn.Queue  // of requests that read; a queue of its own if nil
	Observer  Observer     // counts requests; none if nil
	Tracer    trace.Tracer // of requests; none if nil
	Log       *slog.Logger // discards if nil
}

// Audit configures the audit log of requests.
type Audit struct {
	PolicyFile string // path of the policy, in Kubernetes' format; no audit log if empty
	LogPath    string // path of the log; - is standard output
	MaxAge     int    // days after which files are deleted; never if 0
	MaxBackups int    // number of old files; no limit if 0
	MaxSize    int    // size of a file in MiB
}

// A Server serves the Kubernetes API.
type Server struct {
	prepared interface{ RunWithContext(context.Context) error }
	stopping chan struct{}
	cert     interface{ RunOnce(context.Context) error } // reads the files again; nil without files
	log      *slog.Logger
}

// maxRequest is the size limit of a request in bytes, the same as for the gRPC
// API, so that every object can be written back.
const maxRequest = 72 << 20

// certificateEvery is the interval at which the certificate's files are
// checked.
const certificateEvery = time.Second

// newScheme returns the scheme of the API's types. TKO has one version, which
// is also the internal version.
func newScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	scheme.AddKnownTypes(schema.GroupVersion{Group: v1alpha1.GroupVersion.Group, Version: runtime.APIVersionInternal}, v1alpha1.Objects()...)
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	scheme.AddUnversionedTypes(schema.GroupVersion{Version: "v1"},
		&metav1.Status{}, &metav1.APIVersions{}, &metav1.APIGroupList{}, &metav1.APIGroup{}, &metav1.APIResourceList{})
	for _, k := range kinds() {
		err := scheme.AddFieldLabelConversionFunc(k.gvk(), func(field, value string) (string, string, error) { return field, value, nil })
		if err != nil {
			return nil, err
		}
	}
	return scheme, nil
}

// New returns a server for a catalog. Unless Trusting, it reads from the
// management cluster how users authenticate.
func New(ctx context.Context, catalog Catalog, o Options) (*Server, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Bookmarks == 0 {
		o.Bookmarks = 30 * time.Second
	}
	if o.Turns == nil {
		o.Turns = turn.New()
	}
	logging.Kubernetes(o.Log)
	scheme, err := newScheme()
	if err != nil {
		return nil, err
	}
	public := runtime.NewScheme() // without the internal version
	if err := v1alpha1.AddToScheme(public); err != nil {
		return nil, err
	}
	codecs := serializer.NewCodecFactory(scheme)
	config := genericapiserver.NewRecommendedConfig(codecs)
	config.EffectiveVersion = compatibility.DefaultBuildEffectiveVersion()
	config.MaxRequestBodyBytes = maxRequest
	config.OpenAPIConfig = genericapiserver.DefaultOpenAPIConfig(openapi.GetOpenAPIDefinitions, apiopenapi.NewDefinitionNamer(public))
	config.OpenAPIConfig.Info.Title, config.OpenAPIConfig.Info.Version = "TKO", v1alpha1.GroupVersion.Version
	config.OpenAPIV3Config = genericapiserver.DefaultOpenAPIV3Config(openapi.GetOpenAPIDefinitions, apiopenapi.NewDefinitionNamer(public))
	config.OpenAPIV3Config.Info.Title, config.OpenAPIV3Config.Info.Version = "TKO", v1alpha1.GroupVersion.Version
	if o.Observer == nil {
		o.Observer = noObserver{}
	}
	limits := newWatchLimiter(o.Watches, o.Turns, codecs, o.Observer)
	config.BuildHandlerChainFunc = func(api http.Handler, c *genericapiserver.Config) http.Handler {
		api = withRequests(withAccept(limits.limit(withIdentity(withConfirmation(withAsOf(api))))), o.Tracer)
		chain := awaitProxies(genericapiserver.DefaultBuildHandlerChain(api, c), c.Authentication.RequestHeaderConfig, codecs)
		return observe(chain, c.RequestInfoResolver, o.Observer)
	}
	if err := serveSecurely(config, o); err != nil {
		return nil, err
	}
	if err := authenticate(ctx, config, o); err != nil {
		return nil, err
	}
	if o.Authorizer != nil {
		config.Authorization.Authorizer = o.Authorizer
	}
	if err := audit(config, o.Audit); err != nil {
		return nil, err
	}
	generic, err := config.Complete().New("tko", genericapiserver.NewEmptyDelegate())
	if err != nil {
		return nil, fmt.Errorf("build the Kubernetes API: %w", err)
	}
	generic.ShutdownTimeout = 5 * time.Second
	s := &Server{stopping: make(chan struct{}), log: o.Log}
	s.cert, _ = config.SecureServing.Cert.(interface{ RunOnce(context.Context) error })
	group := genericapiserver.NewDefaultAPIGroupInfo(v1alpha1.GroupVersion.Group, scheme, metav1.ParameterCodec, codecs)
	group.VersionedResourcesStorageMap[v1alpha1.GroupVersion.Version] = s.storages(catalog, config, o)
	if err := generic.InstallAPIGroup(&group); err != nil {
		return nil, fmt.Errorf("build the Kubernetes API: %w", err)
	}
	store := healthz.NamedCheck("store", func(r *http.Request) error {
		_, err := catalog.Position(r.Context())
		return err
	})
	if err := generic.AddReadyzChecks(store); err != nil {
		return nil, fmt.Errorf("build the Kubernetes API: %w", err)
	}
	s.prepared = generic.PrepareRun()
	return s, nil
}

func (s *Server) storages(catalog Catalog, config *genericapiserver.RecommendedConfig, o Options) map[string]rest.Storage {
	storages := map[string]rest.Storage{}
	for _, k := range kinds() {
		one := &storage{
			kind: k, catalog: catalog, hub: newHub(k, catalog), authorizer: config.Authorization.Authorizer,
			bookmarks: o.Bookmarks, stopping: s.stopping, log: o.Log,
		}
		storages[k.resource] = one
		switch k.kind {
		case tko.KindDeployment:
			storages[k.resource+"/"+statusSubresource], storages[k.resource+"/"+approvalSubresource] = statusOf(one), approvalOf(one)
		case tko.KindSite:
			storages[k.resource+"/"+statusSubresource] = statusOf(one)
		case tko.KindRollout:
			for _, verb := range tko.RolloutVerbs() {
				storages[k.resource+"/"+verb] = &commandStorage{storage: one, verb: verb}
			}
		case tko.KindTemplate, tko.KindPlugin, tko.KindSource, tko.KindSubscription:
		}
	}
	return storages
}

// Run serves until ctx is done; then it ends watches and waits for other
// requests to end.
func (s *Server) Run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { close(s.stopping) })
	defer stop()
	var renewing sync.WaitGroup
	defer renewing.Wait()
	while, end := context.WithCancel(ctx)
	defer end()
	renewing.Go(func() { s.renewCertificate(while) })
	return s.prepared.RunWithContext(ctx)
}

// renewCertificate reads the certificate again when its files change.
// Kubernetes' library relies on file notifications for that, which don't report
// that a symbolic link or a directory above the files was replaced.
func (s *Server) renewCertificate(ctx context.Context) {
	if s.cert == nil {
		return
	}
	ticker := time.NewTicker(certificateEvery)
	defer ticker.Stop()
	reported := ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		problem := ""
		if err := s.cert.RunOnce(ctx); err != nil {
			problem = err.Error()
		}
		if problem != "" && problem != reported {
			s.log.WarnContext(ctx, "can't reload the certificate of the kubernetes api, keeping the previous one", "err", problem)
		}
		reported = problem
	}
}

// serveSecurely sets the listeners and the certificate.
func serveSecurely(config *genericapiserver.RecommendedConfig, o Options) error {
	if len(o.Listeners) == 0 {
		return errors.New("the Kubernetes API has no listeners")
	}
	cert, err := certificate(o)
	if err != nil {
		return err
	}
	listener := merge(o.Listeners)
	config.SecureServing = &genericapiserver.SecureServingInfo{Listener: listener, Cert: cert, MinTLSVersion: tls.VersionTLS13}
	config.ExternalAddress = listener.Addr().String()
	config.LoopbackClientConfig = &clientrest.Config{} // the server never calls itself
	return nil
}

// certificate returns the server's certificate.
func certificate(o Options) (dynamiccertificates.CertKeyContentProvider, error) {
	if o.CertFile != "" || o.KeyFile != "" {
		cert, err := dynamiccertificates.NewDynamicServingContentFromFiles("serving", o.CertFile, o.KeyFile)
		if err != nil {
			return nil, tko.Errorf(tko.ErrInvalid, "the certificate of the Kubernetes API: %w", err)
		}
		return cert, nil
	}
	cert, key, err := certs.SelfSigned() // the library's function makes two keys of RSA, which takes most of the start of this API
	if err != nil {
		return nil, fmt.Errorf("generate a certificate: %w", err)
	}
	return dynamiccertificates.NewStaticCertKeyContent("self-signed", cert, key)
}

// authenticate sets how users are authenticated and authorized.
func authenticate(ctx context.Context, config *genericapiserver.RecommendedConfig, o Options) error {
	if o.Trusting {
		config.Authentication.Authenticator = authenticator.RequestFunc(anonymous)
		config.Authorization.Authorizer = authorizerfactory.NewAlwaysAllowAuthorizer()
		return nil
	}
	if _, err := Cluster(o.Kubeconfig); err != nil {
		return err
	}
	authn := options.NewDelegatingAuthenticationOptions()
	authn.RemoteKubeConfigFile = o.Kubeconfig
	if err := authn.ApplyTo(&config.Authentication, config.SecureServing, config.OpenAPIConfig); err != nil {
		return fmt.Errorf("authenticate users at the management cluster: %w", err)
	}
	config.OpenAPIV3Config.SecuritySchemes = nil
	onlyNamedProxies(config)
	authz := options.NewDelegatingAuthorizationOptions()
	authz.RemoteKubeConfigFile = o.Kubeconfig
	if err := authz.ApplyTo(&config.Authorization); err != nil {
		return fmt.Errorf("authorize users at the management cluster: %w", err)
	}
	return ctx.Err()
}

// Cluster returns a client of the management cluster: that of a kubeconfig, or,
// if kubeconfig is empty, the cluster that this process runs in.
func Cluster(kubeconfig string) (kubernetes.Interface, error) {
	var config *clientrest.Config
	var err error
	if kubeconfig == "" {
		config, err = clientrest.InClusterConfig()
		if errors.Is(err, clientrest.ErrNotInCluster) {
			err = tko.Errorf(tko.ErrInvalid, "not running in a cluster: name the management cluster with --kubernetes-kubeconfig, or, on loopback only, set --kubernetes-trust-everybody")
		}
	} else {
		config, err = clientcmd.BuildConfigFromFlags("", kubeconfig)
	}
	var client kubernetes.Interface
	if err == nil {
		client, err = kubernetes.NewForConfig(config)
	}
	if err != nil {
		return nil, fmt.Errorf("authenticate users at the management cluster: %w", err)
	}
	return client, nil
}

// trustedName is the prefix of the names of a Trusting server's users.
const trustedName = "anonymous@"

// anonymous is the authenticator of a Trusting server: it names users by their
// address.
func anonymous(r *http.Request) (*authenticator.Response, bool, error) {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = "unknown"
	}
	return &authenticator.Response{User: &user.DefaultInfo{Name: trustedName + host, Groups: []string{user.AllUnauthenticated}}}, true, nil
}

// audit sets up the audit log.
func audit(config *genericapiserver.RecommendedConfig, a Audit) error {
	o := options.NewAuditOptions()
	o.PolicyFile = a.PolicyFile
	o.LogOptions.Path, o.LogOptions.MaxAge, o.LogOptions.MaxBackups, o.LogOptions.MaxSize = a.LogPath, a.MaxAge, a.MaxBackups, a.MaxSize
	if err := errors.Join(o.Validate()...); err != nil {
		return tko.Errorf(tko.ErrInvalid, "audit: %w", err)
	}
	if err := o.ApplyTo(&config.Config); err != nil {
		return tko.Errorf(tko.ErrInvalid, "audit: %w", err)
	}
	return nil
}
