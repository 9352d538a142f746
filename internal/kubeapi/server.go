package kubeapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

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
	certutil "k8s.io/client-go/util/cert"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/api/v1alpha1"
	"github.com/tko-orchestrator/tko/internal/kubeapi/openapi"
)

// Options are the settings of a [Server].
type Options struct {
	Listeners []net.Listener // where to serve; the server closes them

	// CertFile and KeyFile are the certificate, read again when they change.
	// Without them it is signed by itself, for localhost.
	CertFile, KeyFile string

	// Trusting serves without asking anybody who they are: whoever reaches it
	// may do everything. Only for loopback.
	Trusting bool
	// Kubeconfig is how to reach the management cluster, which says who users are
	// and what they may do; if empty, the cluster that this runs in. Not used if
	// Trusting.
	Kubeconfig string
	// Authorizer says what users may do, if not nil, in place of that cluster.
	Authorizer authorizer.Authorizer

	Audit Audit
	// Bookmarks is how often watchers who want to know are told how far they are,
	// so that they can resume from there, also if nothing has changed; 30s if zero.
	Bookmarks time.Duration
	Watches   WatchLimits
	Log       *slog.Logger // where to report; nowhere if nil
}

// Audit is what is recorded of requests.
type Audit struct {
	PolicyFile string // what, in Kubernetes' format; nothing if empty
	LogPath    string // where to; - is standard output
	MaxAge     int    // days that files are kept; 0: for ever
	MaxBackups int    // files that are kept; 0: all
	MaxSize    int    // MiB of a file
}

// A Server serves the Kubernetes API.
type Server struct {
	prepared interface{ RunWithContext(context.Context) error }
	stopping chan struct{}
	cert     interface{ RunOnce(context.Context) error } // reads files again; nil if there are none
	log      *slog.Logger
}

// maxRequest is how large a request may be: as through the gRPC API, so that
// every object can be written back.
const maxRequest = 72 << 20

// certificateEvery is how often the certificate's files are looked at.
const certificateEvery = time.Second

// newScheme makes what knows the types. TKO has one version only, which is the
// internal one too.
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

// New makes a server of a catalog. It asks the management cluster how to know
// who users are, unless it trusts everybody.
func New(ctx context.Context, catalog Catalog, o Options) (*Server, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Bookmarks == 0 {
		o.Bookmarks = 30 * time.Second
	}
	LogLibraries(o.Log)
	scheme, err := newScheme()
	if err != nil {
		return nil, err
	}
	public := runtime.NewScheme() // without the internal version, which nobody needs to know
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
	limits := newWatchLimiter(o.Watches, codecs)
	config.BuildHandlerChainFunc = func(api http.Handler, c *genericapiserver.Config) http.Handler {
		return genericapiserver.DefaultBuildHandlerChain(withAccept(limits.limit(withConfirmation(api))), c)
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
		return nil, fmt.Errorf("make the Kubernetes API: %w", err)
	}
	generic.ShutdownTimeout = 5 * time.Second
	s := &Server{stopping: make(chan struct{}), log: o.Log}
	s.cert, _ = config.SecureServing.Cert.(interface{ RunOnce(context.Context) error })
	group := genericapiserver.NewDefaultAPIGroupInfo(v1alpha1.GroupVersion.Group, scheme, metav1.ParameterCodec, codecs)
	group.VersionedResourcesStorageMap[v1alpha1.GroupVersion.Version] = s.storages(catalog, config, o)
	if err := generic.InstallAPIGroup(&group); err != nil {
		return nil, fmt.Errorf("make the Kubernetes API: %w", err)
	}
	store := healthz.NamedCheck("store", func(r *http.Request) error {
		_, err := catalog.Position(r.Context())
		return err
	})
	if err := generic.AddReadyzChecks(store); err != nil {
		return nil, fmt.Errorf("make the Kubernetes API: %w", err)
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
			storages[k.resource+"/status"], storages[k.resource+"/approval"] = statusOf(one), approvalOf(one)
		case tko.KindSite:
			storages[k.resource+"/status"] = statusOf(one)
		case tko.KindTemplate, tko.KindPlugin:
		}
	}
	return storages
}

// Run serves until the context ends; then it ends watches, and lets other
// requests under way end.
func (s *Server) Run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { close(s.stopping) })
	defer stop()
	var looking sync.WaitGroup
	defer looking.Wait()
	while, end := context.WithCancel(ctx)
	defer end()
	looking.Go(func() { s.renewCertificate(while) })
	return s.prepared.RunWithContext(ctx)
}

// renewCertificate reads the certificate again when its files change. Kubernetes'
// library does so too, but when it is told of changes only, which it isn't if a
// link or a folder above the files is exchanged.
func (s *Server) renewCertificate(ctx context.Context) {
	if s.cert == nil {
		return
	}
	ticker := time.NewTicker(certificateEvery)
	defer ticker.Stop()
	said := ""
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
		if problem != "" && problem != said {
			s.log.WarnContext(ctx, "can't read the certificate of the Kubernetes API again, so the one before stays", "err", problem)
		}
		said = problem
	}
}

// serveSecurely says where to serve, and with which certificate.
func serveSecurely(config *genericapiserver.RecommendedConfig, o Options) error {
	if len(o.Listeners) == 0 {
		return errors.New("the Kubernetes API has nowhere to listen")
	}
	cert, err := certificate(o)
	if err != nil {
		return err
	}
	listener := merge(o.Listeners)
	config.SecureServing = &genericapiserver.SecureServingInfo{Listener: listener, Cert: cert}
	config.ExternalAddress = listener.Addr().String()
	config.LoopbackClientConfig = &clientrest.Config{} // it never calls itself
	return nil
}

// certificate is the server's.
func certificate(o Options) (dynamiccertificates.CertKeyContentProvider, error) {
	if o.CertFile != "" || o.KeyFile != "" {
		cert, err := dynamiccertificates.NewDynamicServingContentFromFiles("serving", o.CertFile, o.KeyFile)
		if err != nil {
			return nil, tko.Errorf(tko.ErrInvalid, "the certificate of the Kubernetes API: %w", err)
		}
		return cert, nil
	}
	cert, key, err := certutil.GenerateSelfSignedCertKeyWithOptions(certutil.SelfSignedCertKeyOptions{
		Host: "localhost", AlternateIPs: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}, MaxAge: 365 * 24 * time.Hour,
	})
	if err != nil {
		return nil, fmt.Errorf("make a certificate: %w", err)
	}
	return dynamiccertificates.NewStaticCertKeyContent("self-signed", cert, key)
}

// authenticate says who users are and what they may do.
func authenticate(ctx context.Context, config *genericapiserver.RecommendedConfig, o Options) error {
	if o.Trusting {
		config.Authentication.Authenticator = authenticator.RequestFunc(everybody)
		config.Authorization.Authorizer = authorizerfactory.NewAlwaysAllowAuthorizer()
		return nil
	}
	if _, err := Cluster(o.Kubeconfig); err != nil {
		return err
	}
	authn := options.NewDelegatingAuthenticationOptions()
	authn.RemoteKubeConfigFile = o.Kubeconfig
	if err := authn.ApplyTo(&config.Authentication, config.SecureServing, config.OpenAPIConfig); err != nil {
		return fmt.Errorf("the Kubernetes API asks a cluster who users are: %w", err)
	}
	config.OpenAPIV3Config.SecuritySchemes = nil
	authz := options.NewDelegatingAuthorizationOptions()
	authz.RemoteKubeConfigFile = o.Kubeconfig
	if err := authz.ApplyTo(&config.Authorization); err != nil {
		return fmt.Errorf("the Kubernetes API asks a cluster what users may do: %w", err)
	}
	return ctx.Err()
}

// Cluster is a client of the management cluster: that of a kubeconfig, or, if it
// is empty, the cluster that this runs in.
func Cluster(kubeconfig string) (kubernetes.Interface, error) {
	var config *clientrest.Config
	var err error
	if kubeconfig == "" {
		config, err = clientrest.InClusterConfig()
		if errors.Is(err, clientrest.ErrNotInCluster) {
			err = tko.Errorf(tko.ErrInvalid, "this doesn't run in a cluster: say with --kubernetes-kubeconfig which one knows the users, or, on loopback only, --kubernetes-trust-everybody")
		}
	} else {
		config, err = clientcmd.BuildConfigFromFlags("", kubeconfig)
	}
	var client kubernetes.Interface
	if err == nil {
		client, err = kubernetes.NewForConfig(config)
	}
	if err != nil {
		return nil, fmt.Errorf("the Kubernetes API asks a cluster who users are: %w", err)
	}
	return client, nil
}

// everybody is who calls a server that trusts: nobody knows.
func everybody(r *http.Request) (*authenticator.Response, bool, error) {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = "unknown"
	}
	return &authenticator.Response{User: &user.DefaultInfo{Name: "anonymous@" + host, Groups: []string{user.AllUnauthenticated}}}, true, nil
}

// audit says what is recorded.
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
