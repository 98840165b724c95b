package agents

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	"golang.org/x/time/rate"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	authentication "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorization "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"
)

// Callers authorises the callers of an agent, as kubelets and metrics endpoints do. The API
// server must know the caller's token (TokenReview) and permit the path as a nonResourceURL
// (SubjectAccessReview), so a ClusterRole can grant access. Callers requires the
// ClusterRole system:auth-delegator.
type Callers struct {
	reviews authentication.TokenReviewInterface
	access  authorization.SubjectAccessReviewInterface
	log     *slog.Logger
	asking  singleflight.Group
	answers *cache.LRUExpireCache // callerAnswer by callerKey

	// Made-up tokens must not delay known callers whose answer has expired. Callers with a
	// recent positive answer are therefore not rate-limited.
	known     *cache.LRUExpireCache // callerKeys
	strangers *rate.Limiter
	mu        sync.Mutex
	addresses *cache.LRUExpireCache // of unknown callers: *rate.Limiter by remote IP address
}

// Lifetimes of answers, equal to a kubelet's (the TTLs of authorizationWebhook in its
// configuration): the API server is queried rarely, and a revoked right ends soon.
const (
	allowedFor   = 5 * time.Minute
	deniedFor    = 30 * time.Second
	reviewWithin = 10 * time.Second
	keptAnswers  = 1024
	maxToken     = 16 << 10
	knownFor     = time.Hour
)

// Rate limits for reviews of unknown callers, which take up to three requests each. They
// stay below client-go's rate limit of 5 requests a second.
const (
	strangersRate, strangersBurst = rate.Limit(1), 10
	addressRate, addressBurst     = rate.Limit(0.2), 5
)

// callerKey is a token's hash, with verb and path.
type callerKey struct {
	token      [sha256.Size]byte
	verb, path string
}

// callerAnswer is a status code, with the reason of a refusal.
type callerAnswer struct {
	code int
	why  string
}

// NewCallers returns a Callers that queries the API server of cfg. The rate limit of cfg
// applies, by default 5 requests a second, so unknown callers cannot overload the server.
func NewCallers(cfg *rest.Config, log *slog.Logger) (*Callers, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.Timeout = reviewWithin
	tokens, err := authentication.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("using the client configuration: %w", err)
	}
	access, err := authorization.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("using the client configuration: %w", err)
	}
	return &Callers{
		reviews: tokens.TokenReviews(), access: access.SubjectAccessReviews(), log: log, answers: cache.NewLRUExpireCache(keptAnswers),
		known: cache.NewLRUExpireCache(keptAnswers), addresses: cache.NewLRUExpireCache(keptAnswers), strangers: rate.NewLimiter(strangersRate, strangersBurst),
	}, nil
}

// Guard returns a handler that passes authorized requests to next and refuses others. The
// probe paths /healthz and /readyz are open to all.
func (c *Callers) Guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/healthz" || r.URL.Path == "/readyz" {
			next.ServeHTTP(w, r)
			return
		}
		if a := c.answer(r); a.code != http.StatusOK {
			if a.code == http.StatusUnauthorized {
				w.Header().Set("WWW-Authenticate", "Bearer")
			}
			http.Error(w, a.why, a.code)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (c *Callers) answer(r *http.Request) callerAnswer {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	token = strings.TrimSpace(token)
	switch {
	case r.TLS == nil:
		return callerAnswer{http.StatusForbidden, "tokens are accepted only over TLS"}
	case !strings.EqualFold(scheme, "Bearer") || token == "":
		return callerAnswer{http.StatusUnauthorized, "a bearer token is needed"}
	case len(token) > maxToken:
		return callerAnswer{http.StatusUnauthorized, "the token is too long"}
	}
	key := callerKey{sha256.Sum256([]byte(token)), strings.ToLower(r.Method), r.URL.Path}
	if have, ok := c.answers.Get(key); ok {
		return have.(callerAnswer)
	}
	// Concurrent requests with the same key share one review. It continues if their
	// requests end.
	out, err, _ := c.asking.Do(fmt.Sprint(key), func() (any, error) {
		if _, known := c.known.Get(key); !known && !c.allowStranger(r.RemoteAddr) {
			return callerAnswer{http.StatusTooManyRequests, "too many new callers: retry later"}, nil
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), reviewWithin)
		defer cancel()
		a, err := c.review(ctx, token, key)
		if err == nil {
			lasts := deniedFor
			if a.code == http.StatusOK {
				lasts = allowedFor
				c.known.Add(key, nil, knownFor)
			}
			c.answers.Add(key, a, lasts)
		}
		return a, err
	})
	if err != nil {
		c.log.Warn("the API server could not be asked to authenticate the caller", "error", err)
		return callerAnswer{http.StatusServiceUnavailable, "the API server could not be asked to authenticate and authorize the caller"}
	}
	return out.(callerAnswer)
}

// allowStranger reports whether an unknown caller may be reviewed now.
func (c *Callers) allowStranger(remote string) bool {
	address, _, err := net.SplitHostPort(remote)
	if err != nil {
		address = remote
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	limiter, ok := c.addresses.Get(address)
	if !ok {
		limiter = rate.NewLimiter(addressRate, addressBurst)
	}
	c.addresses.Add(address, limiter, knownFor)
	return limiter.(*rate.Limiter).Allow() && c.strangers.Allow()
}

// review queries the API server. It returns an error if the server gave no decision.
func (c *Callers) review(ctx context.Context, token string, key callerKey) (callerAnswer, error) {
	user, err := c.user(ctx, token)
	switch {
	case err != nil:
		return callerAnswer{}, err
	case user == nil:
		return callerAnswer{http.StatusUnauthorized, "the API server does not know the token"}, nil
	}
	extra := map[string]authorizationv1.ExtraValue{}
	for k, v := range user.Extra {
		extra[k] = authorizationv1.ExtraValue(v)
	}
	r, err := c.access.Create(ctx, &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user.Username, UID: user.UID, Groups: user.Groups, Extra: extra,
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Verb: key.verb, Path: key.path},
	}}, metav1.CreateOptions{})
	switch {
	case err != nil:
		return callerAnswer{}, fmt.Errorf("asking what %s may: %w", user.Username, err)
	case !r.Status.Allowed || r.Status.Denied:
		return callerAnswer{http.StatusForbidden, fmt.Sprintf("%s may not %s the nonResourceURL %s", user.Username, key.verb, key.path)}, nil
	}
	return callerAnswer{code: http.StatusOK}, nil
}

// user returns the user of a token; nil if the API server rejects the token. It first tries
// the agents' audience [ServerName], then the API server's own, because Prometheus uses
// such tokens.
func (c *Callers) user(ctx context.Context, token string) (*authenticationv1.UserInfo, error) {
	for _, audiences := range [][]string{{ServerName}, nil} {
		r, err := c.reviews.Create(ctx, &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: audiences}}, metav1.CreateOptions{})
		if err != nil {
			return nil, fmt.Errorf("asking who calls: %w", err)
		}
		// An authenticator without audience support checks the API server's, which suffices, too.
		if r.Status.Authenticated {
			return &r.Status.User, nil
		}
	}
	return nil, nil
}
