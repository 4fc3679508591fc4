// Two passes per frame: Collector finds what the frame loads and stores; Binder then gives every name its slot and goes
// on to the frames inside.
#include "scope.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "filters.h"
#include "tests.h"

namespace rondo::data::jinja {
namespace {

using Action = Load::Action;

/// The names of one frame. Copies made for the branches of an `if` share the frame's layout.
class Symbols {
 public:
  explicit Symbols(const Symbols* parent)
      : parent_(parent),
        level_(parent == nullptr ? 0 : parent->level_ + 1),
        layout_(std::make_shared<std::map<std::string, std::uint32_t>>()) {}

  std::optional<Slot> find(const std::string& name) const {
    if (loads_.count(name) != 0) return Slot{level_, layout_->at(name)};
    return parent_ == nullptr ? std::nullopt : parent_->find(name);
  }
  void load(const std::string& name) {
    if (!find(name)) define(name, Action::kContext);
  }
  void store(const std::string& name) {
    stores_.insert(name);
    if (loads_.count(name) == 0) define(name, find(name) ? Action::kAlias : Action::kUndefined);
  }
  Slot declare_parameter(const std::string& name) {
    stores_.insert(name);
    define(name, Action::kParameter);
    return {level_, layout_->at(name)};
  }
  /// Takes in the branches of an `if`: what only some of them store may come from outside.
  void merge(const std::vector<Symbols>& branches);
  Frame frame() const;

 private:
  void define(const std::string& name, Action action);

  const Symbols* parent_;
  std::uint32_t level_;
  std::shared_ptr<std::map<std::string, std::uint32_t>> layout_;
  std::map<std::string, Load> loads_;
  std::set<std::string> stores_;
};

void Symbols::define(const std::string& name, Action action) {
  const auto index = layout_->emplace(name, static_cast<std::uint32_t>(layout_->size())).first->second;
  Load load{action, index, action == Action::kContext ? name : std::string(), {}};
  if (action == Action::kAlias) load.source = *parent_->find(name);
  loads_[name] = std::move(load);
}

void Symbols::merge(const std::vector<Symbols>& branches) {
  std::set<std::string> fresh;
  for (const Symbols& branch : branches) {
    std::set_difference(branch.stores_.begin(), branch.stores_.end(), stores_.begin(), stores_.end(),
                        std::inserter(fresh, fresh.end()));
  }
  for (const Symbols& branch : branches) {
    for (const auto& [name, load] : branch.loads_) loads_[name] = load;
    stores_.insert(branch.stores_.begin(), branch.stores_.end());
  }
  for (const std::string& name : fresh) {
    const bool outside = parent_ != nullptr && parent_->find(name).has_value();
    define(name, outside ? Action::kAlias : Action::kContext);
  }
}

Frame Symbols::frame() const {
  Frame frame{level_, static_cast<std::uint32_t>(layout_->size()), {}};
  for (const auto& [name, load] : loads_) frame.loads.push_back(load);
  return frame;
}

template <typename Visit>
void each_child(const Expression& expression, Visit visit) {
  for (const ExpressionPtr& item : expression.items) {
    if (item) visit(*item);
  }
  for (const auto& [name, value] : expression.keywords) visit(*value);
  if (expression.star_arguments) visit(*expression.star_arguments);
  if (expression.star_keywords) visit(*expression.star_keywords);
}

/// Finds what one frame loads and stores; inner frames are not entered.
class Collector {
 public:
  explicit Collector(Symbols& symbols) : symbols_(&symbols) {}
  void body(const Body& statements) {
    for (const StatementPtr& statement : statements) visit(*statement);
  }
  void loads(const ExpressionPtr& expression) {
    if (expression) loads(*expression);
  }
  void parameters(const Expression& target) {
    if (target.kind == ExpressionKind::kName) {
      symbols_->declare_parameter(target.text);
    } else {
      for (const ExpressionPtr& item : target.items) parameters(*item);
    }
  }

 private:
  void loads(const Expression& expression) {
    if (expression.kind == ExpressionKind::kName) symbols_->load(expression.text);
    each_child(expression, [this](const Expression& child) { loads(child); });
  }
  void stores(const Expression& target) {
    if (target.kind == ExpressionKind::kName) {
      symbols_->store(target.text);
    } else if (target.kind == ExpressionKind::kAttributeTarget) {
      loads(target);
    } else {
      for (const ExpressionPtr& item : target.items) stores(*item);
    }
  }
  template <typename Visit>
  Symbols branch(Visit visit) {
    Symbols copy = *symbols_;
    Symbols* const original = std::exchange(symbols_, &copy);
    visit();
    symbols_ = original;
    return copy;
  }
  void visit_if(const Statement& statement, std::size_t index) {
    const Branch& chosen = statement.branches[index];
    loads(chosen.condition);
    std::vector<Symbols> copies;
    copies.push_back(branch([&] { body(chosen.body); }));
    if (index == 0) {
      copies.push_back(branch([&] {
        for (std::size_t i = 1; i < statement.branches.size(); ++i) visit_if(statement, i);
      }));
      copies.push_back(branch([&] { body(statement.otherwise); }));
    }
    symbols_->merge(copies);
  }
  void visit(const Statement& statement) {
    switch (statement.kind) {
      case StatementKind::kOutput:
      case StatementKind::kFor:
      case StatementKind::kCallBlock:
      case StatementKind::kFilterBlock:
        return loads(statement.expression);
      case StatementKind::kIf:
        return visit_if(statement, 0);
      case StatementKind::kMacro:
        return symbols_->store(statement.text);
      case StatementKind::kSet:
        loads(statement.expression);
        return stores(*statement.target);
      case StatementKind::kSetBlock:
        return stores(*statement.target);
      case StatementKind::kWith:
        for (const ExpressionPtr& value : statement.values) loads(value);
        return;
      case StatementKind::kText:
      case StatementKind::kGeneration:
      case StatementKind::kBreak:
      case StatementKind::kContinue:
        return;
    }
  }

  Symbols* symbols_;
};

/// Which of a macro's implicit parameters its body reads before it stores them.
class ImplicitParameters {
 public:
  explicit ImplicitParameters(const Body& statements) { body(statements); }
  bool reads(const std::string& name) const { return found_.count(name) != 0; }

 private:
  void body(const Body& statements) {
    for (const StatementPtr& statement : statements) visit(*statement);
  }
  void visit(const ExpressionPtr& expression, bool stores = false) {
    if (expression) visit(*expression, stores);
  }
  void visit(const Expression& expression, bool stores) {
    if (expression.kind == ExpressionKind::kName) {
      if (stores) {
        wanted_.erase(expression.text);
      } else if (wanted_.count(expression.text) != 0) {
        found_.insert(expression.text);
      }
    }
    const bool children_store = stores && expression.kind == ExpressionKind::kTuple;
    each_child(expression, [&](const Expression& child) { visit(child, children_store); });
  }
  void visit(const Statement& statement) {
    visit(statement.target, true);
    visit(statement.expression);
    for (const ExpressionPtr& target : statement.targets) visit(target, true);
    for (const ExpressionPtr& value : statement.values) visit(value);
    for (const Branch& branch : statement.branches) {
      visit(branch.condition);
      body(branch.body);
    }
    body(statement.body);
    body(statement.otherwise);
    visit(statement.condition);
  }

  std::set<std::string> wanted_ = {"caller", "kwargs", "varargs"};
  std::set<std::string> found_;
};

class Binder {
 public:
  void bind(Template& parsed) {
    Symbols symbols(nullptr);
    Collector(symbols).body(parsed.body);
    body(parsed.body, symbols, false);
    parsed.frame = symbols.frame();
  }

 private:
  // `soft`: the place may never be reached, so that an unknown filter or test there is an error only when it is.
  void body(Body& statements, const Symbols& symbols, bool soft) {
    for (const StatementPtr& statement : statements) visit(*statement, symbols, soft);
  }
  void expression(const ExpressionPtr& node, const Symbols& symbols, bool soft) {
    if (node) expression(*node, symbols, soft);
  }
  void expression(Expression& node, const Symbols& symbols, bool soft);
  void target(Expression& node, const Symbols& symbols);
  void visit(Statement& statement, const Symbols& symbols, bool soft);
  void visit_for(Statement& statement, const Symbols& symbols, bool soft);
  void visit_if(Statement& statement, const Symbols& symbols);
  void visit_macro(Statement& statement, const Symbols& symbols);
  void visit_with(Statement& statement, const Symbols& symbols, bool soft);
  void visit_captured(Statement& statement, const Symbols& symbols);

  std::uint32_t loops_ = 0;
};

void Binder::expression(Expression& node, const Symbols& symbols, bool soft) {
  if (node.kind == ExpressionKind::kName) node.slot = *symbols.find(node.text);
  if (node.kind == ExpressionKind::kConditional) soft = true;
  if (!soft && node.kind == ExpressionKind::kFilter && !has_filter(node.text)) {
    throw Failure{fmt::format("the filter '{}' does not exist or is not supported here", node.text), node.line};
  }
  if (!soft && node.kind == ExpressionKind::kTest && !has_test(node.text)) {
    throw Failure{fmt::format("the test '{}' does not exist or is not supported here", node.text), node.line};
  }
  for (const ExpressionPtr& item : node.items) expression(item, symbols, soft);
  for (const auto& [name, value] : node.keywords) expression(*value, symbols, soft);
  expression(node.star_arguments, symbols, soft);
  expression(node.star_keywords, symbols, soft);
}

void Binder::target(Expression& node, const Symbols& symbols) {
  if (node.kind == ExpressionKind::kName) {
    if (loops_ > 0 && node.text == "loop") throw Failure{"cannot assign to 'loop' inside a loop", node.line};
    node.slot = *symbols.find(node.text);
  }
  for (const ExpressionPtr& item : node.items) target(*item, symbols);
}

void Binder::visit_for(Statement& statement, const Symbols& symbols, bool soft) {
  ++loops_;
  expression(statement.expression, symbols, soft);
  Symbols inside(&symbols);
  Collector collector(inside);
  collector.parameters(*statement.target);  // before all else: the condition's frame then has them in the same places
  statement.loop_slot = inside.declare_parameter("loop");
  collector.body(statement.body);
  target(*statement.target, inside);
  body(statement.body, inside, false);
  statement.frame = inside.frame();

  Symbols checking(&symbols);
  Collector condition(checking);
  condition.parameters(*statement.target);
  condition.loads(statement.condition);
  expression(statement.condition, checking, false);
  statement.condition_frame = checking.frame();

  Symbols otherwise(&symbols);
  Collector(otherwise).body(statement.otherwise);
  body(statement.otherwise, otherwise, false);
  statement.otherwise_frame = otherwise.frame();
  --loops_;
}

void Binder::visit_if(Statement& statement, const Symbols& symbols) {
  for (Branch& branch : statement.branches) {
    expression(branch.condition, symbols, true);
    body(branch.body, symbols, true);
  }
  body(statement.otherwise, symbols, true);
}

void Binder::visit_macro(Statement& statement, const Symbols& symbols) {
  Symbols inside(&symbols);
  Collector collector(inside);
  for (const ExpressionPtr& parameter : statement.targets) collector.parameters(*parameter);
  for (const ExpressionPtr& value : statement.values) collector.loads(value);
  collector.body(statement.body);
  const ImplicitParameters implicit(statement.body);
  const auto named = [&statement](std::string_view name) {
    return std::any_of(statement.targets.begin(), statement.targets.end(),
                       [name](const ExpressionPtr& parameter) { return parameter->text == name; });
  };
  statement.takes_caller = implicit.reads("caller") && !named("caller");
  statement.takes_keywords = implicit.reads("kwargs") && !named("kwargs");
  statement.takes_positionals = implicit.reads("varargs") && !named("varargs");
  if (statement.takes_caller) statement.caller_slot = inside.declare_parameter("caller");
  if (statement.takes_keywords) statement.keywords_slot = inside.declare_parameter("kwargs");
  if (statement.takes_positionals) statement.positionals_slot = inside.declare_parameter("varargs");
  for (const ExpressionPtr& parameter : statement.targets) parameter->slot = *inside.find(parameter->text);
  for (const ExpressionPtr& value : statement.values) expression(value, inside, false);
  body(statement.body, inside, false);
  statement.frame = inside.frame();
}

void Binder::visit_with(Statement& statement, const Symbols& symbols, bool soft) {
  for (const ExpressionPtr& value : statement.values) expression(value, symbols, soft);
  Symbols inside(&symbols);
  Collector collector(inside);
  for (const ExpressionPtr& name : statement.targets) collector.parameters(*name);
  collector.body(statement.body);
  for (const ExpressionPtr& name : statement.targets) target(*name, inside);
  body(statement.body, inside, false);
  statement.frame = inside.frame();
}

/// A block whose text goes through the filters of `expression`, or nowhere but on.
void Binder::visit_captured(Statement& statement, const Symbols& symbols) {
  Symbols inside(&symbols);
  Collector collector(inside);
  collector.body(statement.body);
  collector.loads(statement.expression);
  body(statement.body, inside, false);
  expression(statement.expression, inside, false);
  statement.frame = inside.frame();
}

void Binder::visit(Statement& statement, const Symbols& symbols, bool soft) {
  switch (statement.kind) {
    case StatementKind::kOutput:
      return expression(statement.expression, symbols, soft);
    case StatementKind::kFor:
      return visit_for(statement, symbols, soft);
    case StatementKind::kIf:
      return visit_if(statement, symbols);
    case StatementKind::kMacro:
      statement.slot = *symbols.find(statement.text);
      return visit_macro(statement, symbols);
    case StatementKind::kCallBlock:
      expression(statement.expression, symbols, soft);
      return visit_macro(statement, symbols);
    case StatementKind::kSet:
      expression(statement.expression, symbols, soft);
      return target(*statement.target, symbols);
    case StatementKind::kSetBlock:
      target(*statement.target, symbols);
      return visit_captured(statement, symbols);
    case StatementKind::kWith:
      return visit_with(statement, symbols, soft);
    case StatementKind::kFilterBlock:
    case StatementKind::kGeneration:
      return visit_captured(statement, symbols);
    case StatementKind::kText:
    case StatementKind::kBreak:
    case StatementKind::kContinue:
      return;
  }
}

}  // namespace

void bind_names(Template& parsed) { Binder().bind(parsed); }

}  // namespace rondo::data::jinja
